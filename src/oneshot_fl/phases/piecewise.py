"""Results that are made piece by piece: finished pieces outlive a killed process, and so does what they cost."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from oneshot_fl.artifacts import read_work, write_work
from oneshot_fl.ledger import Cost, Meter, cost_of, total
from oneshot_fl.tracking.progress import Task

Counted = tuple[Tensor, int]
"""A piece, and the multiply-accumulates that it took."""


def piecewise(makes: Mapping[str, Callable[[], Counted]], work: Path, task: Task) -> tuple[Tensor, Cost]:
    """All pieces, one behind the other along their first axis, and the cost that the artifact of them has to tell.

    That is all that earlier processes spent on the pieces that they left, and the multiply-accumulates of those made
    now, whose time, memory and energy the store measures.

    Args:
        makes: how each piece is made, by the name of its file; one that lies in `work` is read instead.
        work: the artifact's work folder.
        task: the progress; a piece is as many steps as it is long.

    Raises:
        OneshotError: the work folder cannot be written.
    """
    pieces, costs = [], []
    for name, make in makes.items():
        piece, cost = _left(work / name) or _made(work / name, make)
        pieces.append(piece)
        costs.append(cost)
        task.reach(task.completed + len(piece))
    return torch.cat(pieces), total(costs)


def _left(file: Path) -> tuple[Tensor, Cost] | None:
    """What an earlier process left; None: nothing."""
    found = read_work(file)
    return None if found is None else (found["piece"], cost_of(found["cost"]))


def _made(file: Path, make: Callable[[], Counted]) -> tuple[Tensor, Cost]:
    meter = Meter()
    piece, macs = make()
    write_work(file, {"piece": piece, "cost": asdict(meter.spent(macs=macs))})
    return piece, Cost(macs=macs)
