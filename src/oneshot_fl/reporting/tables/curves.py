"""The server's accuracy over rounds: mean and standard deviation over seeds, for the page and for figures."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from oneshot_fl.reporting.tables.run import Run


@dataclass(frozen=True)
class Curve:
    """One row's accuracies, as fractions."""

    rounds: list[int]
    mean: list[float]
    spread: list[float] | None
    """Sample standard deviation; None with one seed."""
    n: int


def curve_of(runs: Iterable[Run]) -> Curve | None:
    """The curve of one row's finished runs; None where they have no rounds. Of runs of unequal length what all have."""
    histories = [rounds for run in runs if run.summary and (rounds := run.summary["rounds"])]
    if not histories:
        return None
    columns = [[row["accuracy"] for row in rows] for rows in zip(*histories, strict=False)]
    mean = [statistics.fmean(column) for column in columns]
    spread = [statistics.stdev(column) for column in columns] if len(histories) > 1 else None
    return Curve([row["round"] for row in histories[0]][: len(mean)], mean, spread, len(histories))
