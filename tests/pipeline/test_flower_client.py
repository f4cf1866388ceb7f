"""What the app's client side trains with: Flower's own classes are stood in for, and nobody trains."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import pytest

import oneshot_fl
from tests.pipeline.flower import APP

GIVEN = {"clients": 3, "client-settings": "model=cnn2_group clients=dp", "classes": "", "counts": True}


@pytest.fixture
def client(monkeypatch) -> ModuleType:
    """The app's client side."""
    for name in ("flwr", "flwr.app", "flwr.clientapp"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    sys.modules["flwr.clientapp"].ClientApp.return_value.train.return_value = lambda function: function
    monkeypatch.syspath_prepend(str(APP))
    monkeypatch.delitem(sys.modules, "client_app", raising=False)
    import client_app

    monkeypatch.delitem(sys.modules, "client_app")
    return client_app


@pytest.fixture
def trained_with(client, monkeypatch):
    """A function from the run's settings to the overrides that a client trains with, and whether it tells counts."""
    seen = []

    def train_client(folder: object, *overrides: str, out: Path, counts: bool, **options: object) -> None:
        seen[:] = *overrides, counts
        out.touch()

    monkeypatch.setattr(oneshot_fl, "train_client", train_client)

    def trained_with(**given: object) -> list[object]:
        node = {"folder": "x", "number": 1}
        client.train(None, SimpleNamespace(run_config=GIVEN | given, node_config=node))
        return seen

    return trained_with


def test_settings_of_the_federation_are_what_every_client_trains_with(trained_with):
    assert trained_with() == ["partition.clients=3", "model=cnn2_group", "clients=dp", True]


@pytest.mark.parametrize("counts", [False, "false", "true", 1])
def test_counts_are_told_only_where_it_says_true(trained_with, counts):
    assert trained_with(counts=counts)[-1] is False


def _node(**config: object) -> SimpleNamespace:
    return SimpleNamespace(run_config={"folders": "all"}, node_config=config)


def test_a_client_is_what_its_owner_says_or_a_part_of_a_simulation(client):
    assert client.place(_node(folder="mine", number=2)) == (2, Path("mine"))
    assert client.place(_node(**{"partition-id": 1, "num-partitions": 3})) == (1, Path("all/client-1"))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"folder": "mine"}, "--node-config: has no number; give 'folder="),
        ({"number": 1}, "--node-config: has no folder; "),
        ({"fodler": "mine"}, "--node-config: has no folder and no number; "),
        ({"folder": "mine", "number": "1"}, "number='1': must be a whole number from 0, without quotes"),
        ({"folder": "mine", "number": 1.7}, "number=1.7: must be a whole number"),
    ],
)
def test_what_an_owner_left_out_or_misspelt_is_told(config, says, client):
    with pytest.raises(ValueError, match=says):
        client.place(_node(**config))
