"""Flower's server side without Flower: whom it asks, and what it refuses."""

import json
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from oneshot_fl.errors import OneshotError
from tests.pipeline.flower import APP

SETTINGS = {"clients": 2, "wait": 0.0, "timeout": 1.0, "server-settings": "", "test": ""}


@dataclass
class Message:
    """As much of Flower's as the server side uses."""

    content: Any
    message_type: str
    dst_node_id: int


@dataclass
class Grid:
    """Nodes that are connected and never answer."""

    nodes: list[int]
    asked: list[int] = field(default_factory=list)

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def send_and_receive(self, messages: list[Message], *, timeout: float) -> list[Message]:
        self.asked += [message.dst_node_id for message in messages]
        return []


class ServerApp:
    """What `@app.main()` decorates stays the function that it is."""

    def main(self) -> Any:
        return lambda function: function


@pytest.fixture
def server(monkeypatch) -> ModuleType:
    """The app's server side, with stand-ins for what it takes from Flower."""
    names = ("ArrayRecord", "ConfigRecord", "Context")
    records = {name: type(name, (), {}) for name in names}
    app = SimpleNamespace(**records, Message=Message, MessageType=SimpleNamespace(TRAIN="train"), RecordDict=dict)
    for name, module in {"flwr.app": app, "flwr.serverapp": SimpleNamespace(Grid=Grid, ServerApp=ServerApp)}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "flwr", ModuleType("flwr"))
    monkeypatch.syspath_prepend(str(APP))
    monkeypatch.delitem(sys.modules, "server_app", raising=False)
    import server_app

    yield server_app
    del sys.modules["server_app"]


def _context(out: Any, **settings: object) -> SimpleNamespace:
    return SimpleNamespace(run_id=7, run_config={**SETTINGS, "out": str(out), **settings})


def test_everybody_who_is_awaited_is_asked(server, tmp_path):
    grid = Grid([5, 3])
    with pytest.raises(OneshotError, match="uploads-7"):  # nobody has answered
        server.main(grid, _context(tmp_path))
    assert grid.asked == [3, 5]
    assert json.loads((tmp_path / "nodes.json").read_text()) == {"3": "did not answer", "5": "did not answer"}


def test_nobody_is_asked_where_more_have_come_than_were_awaited(server, tmp_path):
    grid = Grid([3, 5, 8])
    with pytest.raises(ValueError, match="clients=2: 3 clients are connected; set clients to 3, or "):
        server.main(grid, _context(tmp_path))
    assert grid.asked == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"server-settings": "method=fedavg model.names=[cnn2]"}, "model has no place here"),
        ({"server-settings": "distill.rounds=-1"}, "distill.rounds"),
        ({"test": "nowhere"}, "test=nowhere: there is no such folder here"),
    ],
)
def test_nobody_is_asked_where_a_setting_of_the_server_is_wrong(wrong, says, server, tmp_path):
    grid = Grid([1, 2])
    with pytest.raises((OneshotError, ValueError), match=says):
        server.main(grid, _context(tmp_path, **wrong))
    assert grid.asked == []


def test_an_earlier_result_is_neither_lost_nor_taken_for_a_new_one(server, tmp_path):
    for name in ("summary.json", "server.safetensors", "nodes.json"):
        (tmp_path / name).write_text("earlier")
    grid = Grid([1, 2])
    with pytest.raises(ValueError, match="holds the result of an earlier run; choose another folder"):
        server.main(grid, _context(tmp_path))
    assert grid.asked == []
    assert {path.read_text() for path in tmp_path.iterdir()} == {"earlier"}
