"""Flower's server side without Flower: whom it asks, and what it refuses."""

import json
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import oneshot_fl
from oneshot_fl.errors import OneshotError
from oneshot_fl.sweeps.alone import LOCK, alone_in
from tests.pipeline.flower import APP

SETTINGS = {"clients": 2, "counts": True, "wait": 0.0, "timeout": 1.0, "server-settings": "", "test": ""}


@dataclass
class Message:
    """As much of Flower's as the server side uses."""

    content: Any
    message_type: str
    dst_node_id: int


@dataclass
class Grid:
    """Nodes that are connected; those with a file answer with it, the others never do."""

    nodes: list[int]
    files: dict[int, bytes] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def send_and_receive(self, messages: list[Message], *, timeout: float) -> list[Any]:
        self.asked += [message.dst_node_id for message in messages]
        return [_reply(number, node, file) for number, (node, file) in enumerate(self.files.items())]


class ArrayRecord(dict[str, Any]):
    """What a reply's file is in."""


class ConfigRecord(dict[str, Any]):
    """What a reply's number is in."""


def _reply(number: int, node: int, file: bytes) -> SimpleNamespace:
    content = {
        "upload": ArrayRecord(file=SimpleNamespace(data=file)),
        "client": ConfigRecord(number=number),
    }
    return SimpleNamespace(metadata=SimpleNamespace(src_node_id=node), has_error=lambda: False, content=content)


class ServerApp:
    """What `@app.main()` decorates stays the function that it is."""

    def main(self) -> Any:
        return lambda function: function


@pytest.fixture
def server(monkeypatch) -> ModuleType:
    """The app's server side, with stand-ins for what it takes from Flower."""
    records = {"ArrayRecord": ArrayRecord, "ConfigRecord": ConfigRecord, "Context": object, "UserConfig": dict}
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
    with pytest.raises(ValueError, match="no client sent an upload; node 3: did not answer; node 5: did not answer"):
        server.main(grid, _context(tmp_path))
    assert grid.asked == [3, 5]
    assert json.loads((tmp_path / "nodes.json").read_text()) == {"3": "did not answer", "5": "did not answer"}


def test_where_fewer_have_come_than_were_awaited_those_are_asked_and_that_is_told(server, tmp_path, capsys):
    grid = Grid([5])
    with pytest.raises(ValueError, match="no client sent an upload"):
        server.main(grid, _context(tmp_path))
    assert grid.asked == [5]
    assert "clients=2: 1 are connected after wait=0 seconds; they go on" in capsys.readouterr().out


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
        ({"server-settings": "method=feddf"}, "method=feddf: works on the server's own images"),
        ({"test": "nowhere"}, "test=nowhere: there is no such folder here"),
        ({"test": str(APP)}, "test=.*: no image file in"),
        ({"counts": "false"}, "counts='false': must be true or false, without quotes"),
    ],
)
def test_nobody_is_asked_where_a_setting_of_the_server_is_wrong(wrong, says, server, tmp_path):
    grid = Grid([1, 2])
    with pytest.raises((OneshotError, ValueError), match=says):
        server.main(grid, _context(tmp_path, **wrong))
    assert grid.asked == []


def test_an_earlier_result_is_neither_lost_nor_taken_for_a_new_one(server, tmp_path):
    names = {"summary.json", "server.safetensors", "nodes.json"}
    for name in names:
        (tmp_path / name).write_text("earlier")
    grid = Grid([1, 2])
    with pytest.raises(ValueError, match="holds the result of an earlier run; choose another folder"):
        server.main(grid, _context(tmp_path))
    assert grid.asked == []
    assert {path.name for path in tmp_path.iterdir()} == {*names, LOCK}
    assert {(tmp_path / name).read_text() for name in names} == {"earlier"}


def test_two_runs_at_once_do_not_share_a_folder(server, tmp_path):
    grid = Grid([1, 2])
    line = f"^{tmp_path}: another process makes a result there; wait for it to end, or choose another folder$"
    with alone_in(tmp_path), pytest.raises(OneshotError, match=line):
        server.main(grid, _context(tmp_path))
    assert grid.asked == []


def test_where_nobody_is_connected_that_is_what_it_says(server, tmp_path):
    with pytest.raises(ValueError, match="no client is connected to this SuperLink after wait=0 seconds"):
        server.main(Grid([]), _context(tmp_path))


def test_one_that_was_begun_again_is_not_asked_twice(server, tmp_path):
    """Flower counts the killed process for a while: two are awaited, three there, and then two."""
    grid, seen = Grid([3, 5]), [[3, 4, 5]]
    grid.get_node_ids = lambda: seen.pop() if seen else [3, 5]
    with pytest.raises(ValueError, match="no client sent an upload"):
        server.main(grid, _context(tmp_path, wait=30.0))
    assert grid.asked == [3, 5]


def test_who_is_lost_is_told_and_costs_neither_the_model_nor_the_run(server, tmp_path, monkeypatch, capsys):
    """The only client that knows a class of the test set is lost, which `aggregate` alone would refuse."""
    asked = []

    def aggregate(uploads, *settings, folder, test=None):
        asked.append(test)
        if test is not None:
            raise OneshotError("test=x: has classes that are not among a, b: c")

    monkeypatch.setattr(oneshot_fl, "aggregate", aggregate)
    monkeypatch.setattr(server, "known_before", lambda settings, test: None)
    server.main(Grid([3, 5], {3: b"an upload"}), _context(tmp_path, test=str(tmp_path)))
    assert asked == [tmp_path, None]
    said = capsys.readouterr().out
    assert "node 5: did not answer" in said
    assert "not among a, b: c\nonce more, without a test" in said
    assert (tmp_path / "uploads-7" / "0000-3.safetensors").read_bytes() == b"an upload"


def test_numbers_that_several_clients_have_or_none_should_have_are_told(server, capsys):
    kept = {"7": "0000-7.safetensors", "3": "0000-3.safetensors", "5": "0001-5.safetensors", "9": "failed: ValueError"}
    server.tell_of_numbers(kept, 3)
    twice = capsys.readouterr().out.splitlines()
    assert [line.partition(";")[0] for line in twice] == ["number=0: is that of node 3 and of node 7"]
    server.tell_of_numbers({"5": "0003-5.safetensors"}, 3)
    assert capsys.readouterr().out.endswith("in its --node-config, from 0 to 2\n")
    server.tell_of_numbers({"5": "0002-5.safetensors", "6": "sent no upload"}, 3)
    assert capsys.readouterr().out == ""
