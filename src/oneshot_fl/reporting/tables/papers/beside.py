"""Our runs beside a paper's table, in its shape: methods across, settings down, three lines for every setting.

A run stands in the table of its study, and in others only where it is their protocol. Runs that differ in what methods
must share never share a sheet, and the paper's own protocol comes first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oneshot_fl.reporting.tables.estimates import Estimate, estimate
from oneshot_fl.reporting.tables.format import Sheet, interval, percent
from oneshot_fl.reporting.tables.own import digests
from oneshot_fl.reporting.tables.papers.matching import deviations, fits, proxy_of
from oneshot_fl.reporting.tables.papers.parts import Found, Part, split
from oneshot_fl.reporting.tables.papers.published import (
    AVERAGE,
    FLOPS,
    OF_ANY_RUN,
    PAPERS,
    Published,
    compares_models,
    measured,
    of_study,
    published,
)
from oneshot_fl.reporting.tables.run import Run

AXES = ("metric", "data", "partition", "partition_value", "clients", "rounds", "model", "variant")
"""What the rows of a table may differ in; those in which they do are shown."""
HEADINGS = {"partition_value": "split", "rounds": "round"}


@dataclass(frozen=True)
class Cell:
    """A printed number and what stands beside it."""

    printed: Published
    runs: list[Run]
    ours: Estimate | None
    """As fractions; of MFLOPs a hundredth, so that both are printed alike."""

    @property
    def delta(self) -> float | None:
        """Ours minus the paper's, in points of a percent."""
        return 100 * self.ours.mean - self.printed.value if self.ours else None

    @property
    def status(self) -> str:
        """Nothing if all its runs are done."""
        if self.printed.asked is None:
            return "–"  # no setting of ours is this one
        if not self.runs:
            return "missing"
        others = [run.status for run in self.runs if run.status != "done"]
        return ", ".join(f"{others.count(status)} {status}" for status in dict.fromkeys(others))


def paper_sheets(runs: list[Run], *, which: str, studies: Sequence[str] = ()) -> list[Sheet]:
    """The sheets of every table that the runs belong to, or of the `studies` that are asked for.

    A run whose `study` is a table belongs to that one, which is shown whole; any other belongs to the first table of
    each paper that prints its setting, the kind of partition included, of which only the settings with runs are shown.
    """
    owned = list(dict.fromkeys(study for run in runs for study in run.all_studies if of_study(study)))
    shown = list(studies) or [*owned, *(study for study in _first_tables(runs) if study not in owned)]
    sheets = [
        (of_study(study)[0].paper, sheet)
        for study in shown
        for sheet in _table(study, runs, which=which, whole=study in (*studies, *owned))
    ]
    first = {paper: sheet for paper, sheet in reversed(sheets)}
    return [_with_note(sheet, PAPERS[paper].note) if sheet is first[paper] else sheet for paper, sheet in sheets]


def _with_note(sheet: Sheet, note: str) -> Sheet:
    return replace(sheet, notes=[*sheet.notes, note])


def _of_no_table(run: Run) -> bool:
    return not any(of_study(study) for study in run.all_studies)


def _first_tables(runs: list[Run]) -> list[str]:
    """For each paper the tables that first print some run's setting, its own protocol before others."""
    found = []
    for paper in PAPERS:
        printed = [cell for cell in published() if cell.paper == paper and _is_plain(cell)]
        for run in filter(_of_no_table, runs):
            claimed = [cell for cell in printed if run.partition in cell.partitions and fits(cell, run, by_model=False)]
            own = (cell for cell in claimed if not deviations(cell, run))
            found += [cell.study for cell in [next(own, *claimed[:1])] if cell] if claimed else []
    return list(dict.fromkeys(found))


def _is_plain(cell: Published) -> bool:
    """Whether a number is of a server, without a variant of its method."""
    return cell.method not in OF_ANY_RUN and not cell.shown_variant and cell.metric != FLOPS


def _table(study: str, runs: list[Run], *, which: str, whole: bool) -> list[Sheet]:
    cells = of_study(study)
    by_model = compares_models(cells)
    pairs = [
        (cell, run)
        for cell in cells
        for run in runs
        if fits(cell, run, by_model=by_model) and _stands_in(study, cell, run)
    ]
    parts = split(pairs) or ([Part({}, (), ())] if whole else [])
    return [_sheet(_shown(cells, part.found, by_model, whole), part, by_model=by_model, which=which) for part in parts]


def _stands_in(study: str, cell: Published, run: Run) -> bool:
    return run.belongs_to(study) or _of_no_table(run) or not deviations(cell, run)


def _shown(cells: Sequence[Published], found: Found, by_model: bool, whole: bool) -> list[Published]:
    settings = {_setting(cell, by_model) for cell in found}
    return [cell for cell in cells if whole or _setting(cell, by_model) in settings]


def _setting(cell: Published, by_model: bool) -> tuple[str, ...]:
    shown = {axis: getattr(cell, axis) for axis in AXES} | {"variant": cell.shown_variant}
    return tuple(value if axis != "model" or by_model else "" for axis, value in shown.items())


def _sheet(cells: list[Published], part: Part, *, by_model: bool, which: str) -> Sheet:
    columns = _columns(cells, part.found)
    settings = list(dict.fromkeys(_setting(cell, by_model) for cell in cells))
    grid = {
        (_setting(cell, by_model), column): _cell(cell, column, part.found.get(cell, []), which)
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
    records = [{"which": which, **_record(cell)} for cell in grid.values()]
    notes = _notes(list(grid.values()), part, which)
    return Sheet(_title(cells[0], settings[0], varying), header, rows, notes, records)


def _columns(cells: list[Published], found: Found) -> list[str]:
    """The table's methods; one that distils on proxy images once for every kind of them."""
    columns = []
    for method in dict.fromkeys(cell.method for cell in cells):
        own = [(cell, run) for cell, runs in found.items() if cell.method == method for run in runs]
        proxies = sorted({proxy_of(cell, run) for cell, run in own} - {""})
        columns += [f"{method} ({proxy})" for proxy in proxies] or [method]
    return columns


def _cell(printed: Published, column: str, runs: list[Run], which: str) -> Cell:
    proxy = column.removeprefix(printed.method).strip(" ()")
    own = [run for run in runs if not proxy or proxy_of(printed, run) == proxy]
    values = _averages(printed, own, which) if printed.partition_value == AVERAGE else _by_seed(printed, own, which)
    # what another run of the seed tells is not missing
    used = [run for run in own if run.status == "done" or run.seed not in values]
    return Cell(printed, used, estimate(list(values.values())) if values else None)


def _by_seed(printed: Published, runs: Iterable[Run], which: str) -> dict[int, float]:
    unit = 100 if printed.metric == FLOPS else 1
    found = ((run.seed, measured(printed, run, which=which)) for run in runs)
    return {seed: value / unit for seed, value in found if value is not None}


def _averages(printed: Published, runs: list[Run], which: str) -> dict[int, float]:
    """The mean over all splits of the table, of the seeds that have all of them."""
    splits = {cell.partition_value for cell in of_study(printed.study)} - {AVERAGE}
    each = [_by_seed(printed, (run for run in runs if run.spread == split), which) for split in sorted(splits)]
    complete = set.intersection(*(set(values) for values in each))
    return {seed: sum(values[seed] for values in each) / len(each) for seed in sorted(complete)}


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
    if cell.printed.metric == FLOPS:
        return f"{100 * cell.ours.mean:.2f}"
    limits = interval(cell.ours)
    return f"{percent(cell.ours)} ({cell.ours.n}{limits and f', {limits}'})" + (cell.status and f" {cell.status}")


def _title(cell: Published, setting: tuple[str, ...], varying: list[int]) -> str:
    fixed = {
        axis: value for position, (axis, value) in enumerate(zip(AXES, setting, strict=True)) if position not in varying
    }
    words = [
        {"ensemble_accuracy_percent": "ensemble", FLOPS: "MFLOPs"}.get(fixed.get("metric", ""), ""),
        fixed.get("data", ""),
        " ".join(fixed[axis] for axis in ("partition", "partition_value") if fixed.get(axis)),
        f"{fixed['clients']} clients" if fixed.get("clients") else "",
        *(fixed.get(axis, "") for axis in ("model", "variant")),
    ]
    return f"{PAPERS[cell.paper].title}, Table {cell.table.removeprefix('T')} ({', '.join(filter(None, words))})"


ACCURACIES = (
    "Accuracy in percent after the {which} round; ours: mean ± standard deviation (seeds, 95% confidence interval from "
    "three seeds on); delta: ours minus the paper's."
)
OPERATIONS = "Millions of multiply-adds of one image's forward pass; the paper calls them FLOPs."


def _notes(cells: list[Cell], part: Part, which: str) -> list[str]:
    printed = cells[0].printed
    mixed = sorted({cell.printed.method for cell in cells if digests(cell.runs)[1:]})
    return [
        OPERATIONS if printed.metric == FLOPS else ACCURACIES.format(which=which),
        *([f"Seeds of one number were run by code that differs: {', '.join(mixed)}."] if mixed else []),
        *([f"Not the paper's protocol: {'; '.join(part.told)}."] if part.told else []),
        *([f"This sheet: {', '.join(part.distinct)}."] if part.distinct else []),
        *(
            ["?: the printed number or its setting is in doubt."]
            if any(cell.printed.doubtful for cell in cells)
            else []
        ),
        *([note] if (note := PAPERS[printed.paper].notes.get(printed.table)) else []),
    ]


def _record(cell: Cell) -> dict[str, Any]:
    printed, ours = cell.printed, cell.ours
    return {
        **{name: getattr(printed, name) for name in ("paper", "method", *AXES)},
        "proxy": ",".join(sorted({proxy_of(printed, run) for run in cell.runs} - {""})),
        "paper_percent": printed.value,
        "paper_std_percent": printed.std,
        "doubtful": printed.doubtful,
        "ours_percent": ours and 100 * ours.mean,
        "ours_std_percent": ours and ours.std and 100 * ours.std,
        "n": ours.n if ours else 0,
        "ours_ci95_half_width_percent": ours and ours.half_width and 100 * ours.half_width,
        "delta_percent": cell.delta,
        "status": cell.status or "done",
        "other_protocol": "; ".join(deviations(printed, cell.runs[0])) if cell.runs else "",
    }
