"""Pieces of earlier processes are read, with all that they cost."""

from functools import partial

import pytest
import torch
from rich.console import Console

from oneshot_fl.artifacts import write_work
from oneshot_fl.ledger import NOTHING, Cost
from oneshot_fl.phases.piecewise import piecewise
from oneshot_fl.tracking.progress import Progress


@pytest.fixture
def task():
    return Progress(Console(quiet=True)).task("pieces", 5, "steps")


@pytest.fixture
def makes(clock):
    """Two pieces by name, of two and three steps, that take a second each; and the names of those that were made."""
    made = []

    def make(name, piece, macs):
        made.append(name)
        clock.tick()
        return torch.tensor(piece), macs

    pieces = {"a.pt": ([1, 2], 10), "b.pt": ([3, 4, 5], 20)}
    return {name: partial(make, name, *piece) for name, piece in pieces.items()}, made


def test_of_pieces_that_are_made_now_only_what_was_counted_is_told(makes, tmp_path, task):
    joined, cost = piecewise(makes[0], tmp_path, task)
    assert joined.tolist() == [1, 2, 3, 4, 5]
    assert cost == Cost(macs=30)
    assert task.completed == 5


def test_a_piece_of_an_earlier_process_is_not_made_again_and_tells_all_that_it_cost(makes, tmp_path, task):
    functions, made = makes
    with pytest.raises(KeyError, match="killed"):
        piecewise({"a.pt": functions["a.pt"], "b.pt": partial({}.__getitem__, "killed")}, tmp_path, task)
    joined, cost = piecewise(functions, tmp_path, task)
    assert made == ["a.pt", "b.pt"]
    assert joined.tolist() == [1, 2, 3, 4, 5]
    assert (cost.seconds, cost.cpu_seconds, cost.macs) == (1.0, 1.0, 30)
    assert cost.peak_host_bytes > 0


def test_what_a_piece_did_not_tell_is_unknown(makes, tmp_path, task):
    write_work(tmp_path / "a.pt", {"piece": torch.tensor([1, 2]), "cost": {"seconds": 4.0, "macs": 10}})
    _, cost = piecewise(makes[0], tmp_path, task)
    assert (cost.seconds, cost.macs, cost.cpu_joules) == (4.0, 30, None)


def test_a_damaged_piece_is_made_again(makes, tmp_path, task):
    functions, made = makes
    piecewise(functions, tmp_path, task)
    (tmp_path / "a.pt").write_bytes(b"cut short")
    joined, cost = piecewise(functions, tmp_path, task)
    assert made == ["a.pt", "b.pt", "a.pt"]
    assert joined.tolist() == [1, 2, 3, 4, 5]
    assert cost.macs == 30
    assert cost.seconds == NOTHING.seconds + 1.0
