"""Our runs beside a paper's table, in its shape: methods across, settings down, three lines a setting.

Runs under different protocols never share a sheet. Where a paper sets part of its protocol by method or data set
(FedMHO: clients, rounds, rates), that part is compared method by method, and the others' settings do not matter.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oneshot_fl.reporting.tables.estimates import Estimate, estimate
from oneshot_fl.reporting.tables.format import Sheet, percent
from oneshot_fl.reporting.tables.papers.published import (
    OF_ANY_RUN,
    TITLES,
    Published,
    compares_models,
    deviations,
    fits,
    measured,
    of_study,
    own_deviations,
    published,
)
from oneshot_fl.reporting.tables.papers.stated import BY_METHOD
from oneshot_fl.reporting.tables.runs import Run

AXES = ("metric", "data", "partition", "partition_value", "clients", "rounds", "model", "variant")
"""What the rows of a table may differ in; those in which they do are shown."""
HEADINGS = {"partition_value": "split", "rounds": "round"}
Found = dict[Published, list[Run]]
"""Runs by the number that they stand beside."""


@dataclass(frozen=True)
class Protocol:
    """Runs that may share a column: all that is set outside the table's axes, and not by method, agrees."""

    deviations: tuple[str, ...]
    """From the paper's protocol; none if it is the paper's."""
    conditions: str


@dataclass(frozen=True)
class Cell:
    """A printed number and what stands beside it."""

    printed: Published
    runs: list[Run]
    ours: Estimate | None

    @property
    def delta(self) -> float | None:
        """Ours minus the paper's, in points of a percent."""
        return 100 * self.ours.mean - self.printed.value if self.ours else None

    @property
    def status(self) -> str:
        """Nothing if all its runs are done."""
        if not self.runs:
            return "missing"
        troubles = [run.status for run in self.runs if run.status != "done"]
        return ", ".join(f"{troubles.count(status)} {status}" for status in dict.fromkeys(troubles))


def paper_sheets(runs: list[Run], *, which: str, studies: Sequence[str] = ()) -> list[Sheet]:
    """A sheet for every protocol of every table that the runs belong to, or of the `studies` that are asked for.

    A run whose `study` is a table belongs to that one, which is shown whole; any other belongs to the first table of
    each paper that prints its setting, the kind of partition included, of which only the settings with runs are shown.
    """
    named = list(studies) or [study for study in dict.fromkeys(run.study for run in runs) if of_study(study)]
    sheets = [sheet for study in named for sheet in _table(of_study(study), runs, which=which, whole=True)]
    if studies:
        return sheets
    others = [run for run in runs if run.study not in named]
    return sheets + [sheet for cells in _first_tables(others) for sheet in _table(cells, others, which=which)]


def _first_tables(runs: list[Run]) -> Iterable[list[Published]]:
    """For each paper the tables that first print some run's setting, without variants of the method."""
    for paper in TITLES:
        own = (cell for cell in published() if cell.paper == paper and cell.method not in OF_ANY_RUN)
        cells = [cell for cell in own if not cell.knobs]
        firsts = [next((cell for cell in cells if _claims(cell, run)), None) for run in runs]
        yield from (of_study(study) for study in dict.fromkeys(cell.study for cell in firsts if cell))


def _claims(cell: Published, run: Run) -> bool:
    return cell.partition == run.partition and fits(cell, run, by_model=False)


def _table(cells: list[Published], runs: list[Run], *, which: str, whole: bool = False) -> list[Sheet]:
    by_model = compares_models(cells)
    groups: dict[Protocol, list[tuple[Published, Run]]] = {}
    for cell in cells:
        for run in runs:
            if fits(cell, run, by_model=by_model):
                protocol = Protocol(deviations(cell, run), _conditions(cell.paper, run))
                groups.setdefault(protocol, []).append((cell, run))
    if whole and not groups:
        groups[Protocol((), "")] = []
    return [
        _sheet(_shown(cells, found, by_model, whole), found, protocol, by_model=by_model, which=which)
        for protocol, pairs in groups.items()
        for found in _parts(pairs)
    ]


def _parts(pairs: list[tuple[Published, Run]]) -> list[Found]:
    """Split so that the runs of one method on one data set deviate alike from what is stated of them, if at all.

    The first part has those that do not deviate.
    """
    ways: dict[tuple[str, str], dict[tuple[str, ...], Found]] = {}
    for cell, run in pairs:
        own = ways.setdefault((cell.method, cell.data), {})
        own.setdefault(own_deviations(cell, run), {}).setdefault(cell, []).append(run)
    parts: list[Found] = [{} for _ in range(max(map(len, ways.values()), default=1))]
    for own in ways.values():
        for part, way in zip(parts, sorted(own, key=bool), strict=False):
            part.update(own[way])
    return parts


def _conditions(paper: str, run: Run) -> str:
    """All settings outside any table's axes, without those that the paper sets by method or data set."""
    settings = {key: run.setting(key) for key in ("generator", "clients", "stratify", "distill", "trainer")}
    shared = _without(settings, BY_METHOD.get(paper, frozenset()))
    axes = ("alpha", "classes", "sigma", "held_out", "clients")
    partition = {key: value for key, value in run.setting("partition").items() if key not in axes}
    return json.dumps([run.budget, shared, partition], sort_keys=True)


def _without(node: dict[str, Any], keys: Collection[str], prefix: str = "") -> dict[str, Any]:
    """Nested settings without those of some dotted keys."""
    return {
        key: _without(value, keys, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in node.items()
        if f"{prefix}{key}" not in keys
    }


def _shown(cells: list[Published], found: Found, by_model: bool, whole: bool) -> list[Published]:
    settings = {_setting(cell, by_model) for cell in found}
    return [cell for cell in cells if whole or _setting(cell, by_model) in settings]


def _setting(cell: Published, by_model: bool) -> tuple[str, ...]:
    shown = {axis: getattr(cell, axis) for axis in AXES} | {"variant": cell.knobs}
    return tuple(value if axis != "model" or by_model else "" for axis, value in shown.items())


def _sheet(cells: list[Published], found: Found, protocol: Protocol, *, by_model: bool, which: str) -> Sheet:
    columns = _columns(cells, found)
    settings = list(dict.fromkeys(_setting(cell, by_model) for cell in cells))
    grid = {
        (_setting(cell, by_model), column): _cell(cell, column, found.get(cell, []), which)
        for cell in cells
        for column in columns
        if column.split(" ")[0] == cell.method
    }
    varying = [position for position in range(len(AXES)) if len({setting[position] for setting in settings}) > 1]
    header = [*(HEADINGS.get(AXES[position], AXES[position]) for position in varying), "", *columns]
    rows = [
        [*((setting[position] if not line else "") for position in varying), name, *texts]
        for setting in settings
        for line, (name, texts) in enumerate(_lines([grid.get((setting, column)) for column in columns]))
    ]
    records = [_record(cell, protocol) for cell in grid.values()]
    notes = _notes(grid.values(), [*protocol.deviations, *_by_method(found)])
    return Sheet(_title(cells[0], settings[0], varying), header, rows, notes, records)


def _columns(cells: list[Published], found: Found) -> list[str]:
    """The table's methods; one that distils on proxy images once for every kind of them."""
    columns = []
    for method in dict.fromkeys(cell.method for cell in cells):
        proxies = sorted({run.proxy for cell, runs in found.items() if cell.method == method for run in runs} - {""})
        columns += [f"{method} ({proxy})" for proxy in proxies] or [method]
    return columns


def _cell(printed: Published, column: str, runs: list[Run], which: str) -> Cell:
    proxy = column.removeprefix(printed.method).strip(" ()")
    own = [run for run in runs if not proxy or run.proxy == proxy]
    by_seed = {run.seed: value for run in own if (value := measured(printed, run, which=which)) is not None}
    return Cell(printed, own, estimate(list(by_seed.values())) if by_seed else None)


def _lines(cells: list[Cell | None]) -> list[tuple[str, list[str]]]:
    return [
        ("paper", [_printed(cell) if cell else "" for cell in cells]),
        ("ours", [_ours(cell) if cell else "" for cell in cells]),
        ("delta", ["" if cell is None or cell.delta is None else f"{cell.delta:+.2f}" for cell in cells]),
    ]


def _printed(cell: Cell) -> str:
    printed = cell.printed
    spread = "" if printed.std is None else f" ± {printed.std:.2f}"
    return f"{printed.value:.2f}{spread}{' ?' if printed.doubtful else ''}"


def _ours(cell: Cell) -> str:
    if cell.ours is None:
        return cell.status
    interval = "" if cell.ours.half_width is None else f", ±{100 * cell.ours.half_width:.2f}"
    return f"{percent(cell.ours)} ({cell.ours.n}{interval})" + (f" {cell.status}" if cell.status else "")


def _title(cell: Published, setting: tuple[str, ...], varying: list[int]) -> str:
    fixed = {
        axis: value for position, (axis, value) in enumerate(zip(AXES, setting, strict=True)) if position not in varying
    }
    told = [
        "ensemble" if fixed.get("metric", "").startswith("ensemble") else "",
        fixed.get("data", ""),
        " ".join(fixed[axis] for axis in ("partition", "partition_value") if axis in fixed),
        f"{fixed['clients']} clients" if "clients" in fixed else "",
        *(fixed.get(axis, "") for axis in ("model", "variant")),
    ]
    return f"{TITLES[cell.paper]}, Table {cell.table.removeprefix('T')} ({', '.join(filter(None, told))})"


def _by_method(found: Found) -> list[str]:
    """Deviations that hold for some methods only, with their names, and with the data sets where it is not all."""
    whose: dict[str, dict[str, list[str]]] = {}
    data: dict[str, list[str]] = {}
    for cell, runs in found.items():
        _note(data, cell.method, cell.data)
        for phrase in own_deviations(cell, runs[0]):
            _note(whose.setdefault(phrase, {}), cell.method, cell.data)
    told: dict[tuple[str, str], list[str]] = {}
    for phrase, methods in whose.items():
        for method, where in methods.items():
            limited = "" if where == data[method] else f" on {', '.join(where)}"
            told.setdefault((phrase, limited), []).append(method)
    return [f"{', '.join(methods)}{limited}: {phrase}" for (phrase, limited), methods in told.items()]


def _note(seen: dict[str, list[str]], key: str, value: str) -> None:
    """Add a value behind a key once."""
    if value not in seen.setdefault(key, []):
        seen[key].append(value)


def _notes(cells: Iterable[Cell], deviations: Sequence[str]) -> list[str]:
    notes = [
        "Accuracy in percent; ours: mean ± standard deviation (seeds, half the 95% confidence interval); "
        "delta: ours minus the paper's."
    ]
    if deviations:
        notes.append(f"Not the paper's protocol: {'; '.join(deviations)}.")
    if any(cell.printed.doubtful for cell in cells):
        notes.append("?: the printed number or its setting is in doubt.")
    return notes


def _record(cell: Cell, protocol: Protocol) -> dict[str, Any]:
    printed = cell.printed
    ours = cell.ours
    own = own_deviations(printed, cell.runs[0]) if cell.runs else ()
    return {
        **{name: getattr(printed, name) for name in ("paper", "method", *AXES)},
        "proxy": ",".join(sorted({run.proxy for run in cell.runs} - {""})),
        "paper_percent": printed.value,
        "paper_std": printed.std,
        "doubtful": printed.doubtful,
        "ours_percent": ours and 100 * ours.mean,
        "ours_std": ours and ours.std and 100 * ours.std,
        "n": ours.n if ours else 0,
        "ci95_half_width": ours and ours.half_width and 100 * ours.half_width,
        "delta": cell.delta,
        "status": cell.status or "done",
        "other_protocol": "; ".join((*protocol.deviations, *own)),
    }
