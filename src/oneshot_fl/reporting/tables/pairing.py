"""Which seeds of several rows may be compared, and paired differences over them.

Methods share clients seed by seed, so what the clients do to all of them cancels. It does so only on one partition:
code that was changed, or a part of one's own, can split the same seed otherwise.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oneshot_fl.reporting.tables.estimates import Estimate, estimate
from oneshot_fl.reporting.tables.run import Run

T = TypeVar("T")
Value = Callable[[dict[str, Any]], float | None]
"""What a summary tells."""


@dataclass(frozen=True)
class Outcomes:
    """What the runs of a row reached, by seed."""

    values: dict[int, float]
    partitions: dict[int, str] = field(default_factory=dict)
    """SHA-256 of the partition of each of these seeds; without those whose runs do not tell it (earlier versions)."""

    def times(self, factor: int) -> "Outcomes":
        """The same with all values times `factor`."""
        return Outcomes({seed: factor * value for seed, value in self.values.items()}, self.partitions)


def outcomes(runs: Iterable[Run], value: Value) -> Outcomes:
    """What the runs of a row that are done tell of `value`, and of their partitions."""
    runs = list(runs)
    values, partitions = by_seed(runs, value), by_seed(runs, _partition)
    return Outcomes(values, {seed: digest for seed, digest in partitions.items() if seed in values})


def _partition(summary: dict[str, Any]) -> str | None:
    return (summary.get("partition") or {}).get("sha256")


def by_seed(runs: Iterable[Run], value: Callable[[dict[str, Any]], T | None]) -> dict[int, T]:
    """The values of the runs that have one."""
    found = {run.seed: value(run.summary) for run in sorted(runs, key=lambda run: run.seed) if run.summary}
    return {seed: known for seed, known in found.items() if known is not None}


def paired(first: Outcomes, second: Outcomes, *, comparisons: int = 1) -> Estimate | None:
    """`first` minus `second` over the seeds that both have on one partition; None where there is no such seed."""
    differences = [first.values[seed] - second.values[seed] for seed in shared_seeds([first, second])]
    return estimate(differences, comparisons=comparisons) if differences else None


def shared_seeds(rows: Collection[Outcomes]) -> list[int]:
    """The seeds that all of at least one row have, and have on one partition as far as their runs tell it."""
    return [seed for seed in seeds_of_all(rows) if len(_partitions(rows, seed)) <= 1]


def seeds_of_all(rows: Iterable[Outcomes]) -> list[int]:
    """The seeds that all of at least one row have, on whatever partition."""
    return sorted(set.intersection(*(set(row.values) for row in rows)))


def _partitions(rows: Iterable[Outcomes], seed: int) -> set[str]:
    return {row.partitions[seed] for row in rows if seed in row.partitions}


def comparable_sets(rows: Mapping[str, Outcomes]) -> list[list[frozenset[str]]]:
    """For every seed of any row the largest sets of rows that may be compared there, one for each partition."""
    return [_comparable_in(seed, rows) for seed in _seeds(rows)]


def _comparable_in(seed: int, rows: Mapping[str, Outcomes]) -> list[frozenset[str]]:
    there = {label: row.partitions.get(seed) for label, row in rows.items() if seed in row.values}
    told = [each for each in dict.fromkeys(there.values()) if each is not None] or [""]
    return [frozenset(label for label, own in there.items() if own in (None, each)) for each in told]


def _seeds(rows: Mapping[str, Outcomes]) -> list[int]:
    return sorted({seed for row in rows.values() for seed in row.values})


def not_compared(rows: Mapping[str, Outcomes]) -> list[str]:
    """Lines that name the rows whose partitions differ, and the seeds in which they do."""
    seeds: dict[str, list[int]] = {}
    for seed in _seeds(rows):
        if told := _split_otherwise(seed, rows):
            seeds.setdefault(told, []).append(seed)
    return [
        f"Partitions differ in seed{'s' if own[1:] else ''} {', '.join(map(str, own))}, where these are not compared "
        f"with one another: {told}."
        for told, own in seeds.items()
    ]


def _split_otherwise(seed: int, rows: Mapping[str, Outcomes]) -> str:
    """The rows on each partition of a seed; empty where there is one."""
    labels: dict[str, list[str]] = {}
    for label, row in rows.items():
        if seed in row.partitions:
            labels.setdefault(row.partitions[seed], []).append(label)
    return "; ".join(map(", ".join, labels.values())) if len(labels) > 1 else ""
