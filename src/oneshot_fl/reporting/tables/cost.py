"""Tables of what runs cost: one for every group of comparable runs, a row for every method, means over seeds.

A phase's cost is that of making its results, also where a run found them in the store: clients that several methods
share are charged to each of them, as each would have needed them.
"""

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

from oneshot_fl.reporting.tables.format import Sheet
from oneshot_fl.reporting.tables.own import comparable, rank, rows_of, titles
from oneshot_fl.reporting.tables.run import Run

Ledger = dict[str, dict[str, Any]]
"""A summary's `cost`."""
PHASES = ("prepare", "clients", "stratify", "recite", "distill", "evaluate")


def cost_sheets(runs: Iterable[Run]) -> list[Sheet]:
    """A table for every group of comparable runs."""
    groups = comparable(runs)
    return [_sheet(title, group) for title, group in zip(titles(groups), groups, strict=True)]


def _sheet(title: str, runs: list[Run]) -> Sheet:
    rows = {label: _ledgers(mine) for label, mine in sorted(rows_of(runs).items(), key=lambda row: rank(row[0]))}
    means = {label: _means(ledgers) for label, ledgers in rows.items()}
    names = [name for name in COLUMNS if any(own[name] for own in means.values())]
    cells = [[label, str(len(rows[label])), *(_cell(own[name]) for name in names)] for label, own in means.items()]
    records = [{"row": label, "n": len(rows[label]), **own} for label, own in means.items()]
    without = sum(run.summary is not None and "cost" not in run.summary for run in runs)
    notes = [f"{without} finished runs of earlier versions do not tell their cost; run them again."] if without else []
    return Sheet(title, ["", "seeds", *names], cells, [NOTE, *notes], records)


NOTE = "Mean over seeds of what it takes to make each phase's results, whoever made them; – is not known."


def _ledgers(runs: list[Run]) -> list[Ledger]:
    return [run.summary["cost"] for run in runs if run.summary and "cost" in run.summary]


def _means(ledgers: list[Ledger]) -> dict[str, float | None]:
    values = {name: [column(each) for each in ledgers] for name, column in COLUMNS.items()}
    known = {name: [value for value in each if value is not None] for name, each in values.items()}
    return {name: fmean(each) if each and len(each) == len(ledgers) else None for name, each in known.items()}


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _total(figure: str, unit: float = 1.0) -> Callable[[Ledger], float | None]:
    """The sum over phases; None where one of them is not known."""

    def total(ledger: Ledger) -> float | None:
        values = [entry.get(figure) for entry in ledger.values()]
        return None if None in values else sum(values) / unit  # type: ignore[arg-type]

    return total


def _peak(figure: str, unit: float) -> Callable[[Ledger], float | None]:
    def peak(ledger: Ledger) -> float | None:
        values = [entry.get(figure) for entry in ledger.values()]
        return None if None in values or not any(values) else max(values) / unit  # type: ignore[type-var, operator]

    return peak


def _seconds(phase: str) -> Callable[[Ledger], float | None]:
    return lambda ledger: ledger.get(phase, {}).get("seconds")


COLUMNS: dict[str, Callable[[Ledger], float | None]] = {
    **{f"{phase}, s": _seconds(phase) for phase in PHASES},
    "all, s": _total("seconds"),
    "CPU, s": _total("cpu_seconds"),
    "memory, MB": _peak("peak_host_bytes", 1e6),
    "device memory, MB": _peak("peak_device_bytes", 1e6),
    "GMACs": _total("macs", 1e9),
    "upload, MB": _total("upload_bytes", 1e6),
    "download, MB": _total("download_bytes", 1e6),
    "CPU energy, kJ": _total("cpu_joules", 1e3),
    "GPU energy, kJ": _total("gpu_joules", 1e3),
}
"""What a table tells of a ledger; columns that nobody fills are left out."""
