"""One table over all settings, as papers print it: a row for every method, a column for every setting: `--wide`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oneshot_fl.reporting.tables.estimates import Estimate, estimate
from oneshot_fl.reporting.tables.format import Sheet, percent
from oneshot_fl.reporting.tables.measures import Measure
from oneshot_fl.reporting.tables.own import (
    comparable,
    labels_in,
    labels_meant,
    mixed_code,
    not_the_same,
    rank,
    reasons,
    references,
    rows_of,
    unmeasured,
)
from oneshot_fl.reporting.tables.pairing import Outcomes, not_compared, outcomes
from oneshot_fl.reporting.tables.run import Run
from oneshot_fl.reporting.tables.setting_titles import titles_beside


@dataclass(frozen=True)
class Column:
    """One setting."""

    title: str
    runs: dict[str, list[Run]]
    """By label, of methods' rows."""
    server: dict[str, Outcomes]
    """What these reached."""
    values: dict[str, dict[int, float]]
    """By row and seed, in fractions, of ensembles and clients too; a row that the setting lacks is missing or empty."""

    def estimate(self, row: str) -> Estimate | None:
        """Of what a row reached over its seeds; None where it has none."""
        values = self.values.get(row)
        return estimate(list(values.values())) if values else None


def wide_sheets(runs: Iterable[Run], measure: Measure, wanted: Sequence[str] = ()) -> list[Sheet]:
    """One table over all groups of comparable runs; none without a run.

    Args:
        measure: what is told.
        wanted: labels, methods, ensembles' and clients' rows in the order in which they are printed; without any, all
            labels.

    Raises:
        OneshotError: a wanted row is none.
    """
    groups = comparable(runs)
    return [_sheet(groups, measure, wanted)] if groups else []


def _sheet(groups: Sequence[list[Run]], measure: Measure, wanted: Sequence[str]) -> Sheet:
    titles = titles_beside(groups)
    columns = [
        _column(title or measure.header, group, measure) for title, group in zip(titles.each, groups, strict=True)
    ]
    rows = _rows(columns, sorted(labels_in(groups), key=rank), wanted)
    untold = [f"Settings differ in {', '.join(titles.untold)}, too."] if titles.untold else []
    return Sheet(
        ": ".join(filter(None, [f"{measure.note}, {measure.header}", titles.shared])),
        ["", *(column.title for column in columns)],
        [[row, *(_cell(column.estimate(row)) for column in columns)] for row in rows],
        [*_over_seeds(columns, rows), *untold, *_notes(columns, rows, measure)],
        [_record(row, column, measure) for row in rows for column in columns],
        frozenset((line, n) for n, column in enumerate(columns, 1) for line in _best(column, rows, measure)),
    )


def _column(title: str, group: list[Run], measure: Measure) -> Column:
    runs = rows_of(group)
    server = {label: outcomes(own, measure.server) for label, own in runs.items()}
    reached = {label: own.values for label, own in server.items()}
    return Column(title, runs, server, reached | references(runs, measure))


def _rows(columns: Sequence[Column], labels: Sequence[str], wanted: Sequence[str]) -> list[str]:
    others = list(dict.fromkeys(row for column in columns for row in column.values if row not in labels))
    meant = [label for row in wanted for label in labels_meant(row, labels, others)]
    return list(dict.fromkeys(meant)) if wanted else list(labels)


def _cell(value: Estimate | None) -> str:
    return percent(value) if value else "–"


def _best(column: Column, rows: Sequence[str], measure: Measure) -> list[int]:
    """The positions of the best means, as they are printed; none where fewer than two rows have one."""
    known = {line: own.mean for line, row in enumerate(rows) if (own := column.estimate(row))}
    printed = {line: round(100 * measure.sign * mean, 2) for line, mean in known.items()}
    return [line for line, mean in printed.items() if mean == max(printed.values())] if len(printed) > 1 else []


def _over_seeds(columns: Sequence[Column], rows: Sequence[str]) -> list[str]:
    """Over which seeds cells are: the seeds of most, and the cells that have others."""
    seeds = [{row: tuple(own) for row in rows if (own := column.values.get(row))} for column in columns]
    counted = Counter(each for own in seeds for each in own.values())
    if not counted:
        return []
    usual = max(counted, key=lambda each: (counted[each], len(each)))
    others = {
        each: [_cells_with(each, own, column.title) for own, column in zip(seeds, columns, strict=True)]
        for each in counted
        if each != usual
    }
    return [
        f"Mean ± standard deviation over {_named(usual)}{' where nothing else is said' if others else ''}.",
        *(f"Over {_named(each)}: {'; '.join(filter(None, places))}." for each, places in others.items()),
    ]


def _cells_with(seeds: tuple[int, ...], column: dict[str, tuple[int, ...]], title: str) -> str:
    """The cells of a column that have these seeds; empty where none has."""
    rows = [row for row, own in column.items() if own == seeds]
    if not rows:
        return ""
    return f"all in {title}" if len(rows) == len(column) > 1 else f"{', '.join(rows)} in {title}"


def _named(seeds: Sequence[int]) -> str:
    """Seeds with their number."""
    return f"{len(seeds)} seed{'s' if seeds[1:] else ''} ({', '.join(map(str, seeds))})"


def _notes(columns: Sequence[Column], rows: Sequence[str], measure: Measure) -> list[str]:
    """What the rows that are shown do not tell, and how far they may be compared."""
    shown = [{label: own for label, own in column.runs.items() if label in rows} for column in columns]
    runs = [run for own in shown for group in own.values() for run in group]
    by_setting = [
        f"{column.title}: {line}"
        for column, own in zip(columns, shown, strict=True)
        for line in [*not_compared({label: column.server[label] for label in own}), *mixed_code(own)]
    ]
    return [*unmeasured(runs, measure), *not_the_same(shown), *by_setting, *reasons(runs)]


def _record(row: str, column: Column, measure: Measure) -> dict[str, Any]:
    own, seeds = column.estimate(row), column.values.get(row, {})
    return {
        "metric": measure.key,
        "row": row,
        "setting": column.title,
        "n": len(seeds),
        "seeds": " ".join(map(str, seeds)),
        "mean": own and own.mean,
        "std": own and own.std,
    }
