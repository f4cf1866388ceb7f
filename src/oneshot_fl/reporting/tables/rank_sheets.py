"""How methods rank over settings and seeds, and how much that depends on the setting: `--ranks`.

A block is one seed of one setting, on one partition: there all methods have the same clients. Blocks of one seed share
samples, and those of one setting a task, so they are not independent: the test over settings, seeds averaged first, is
the stricter one.
"""

import statistics
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.chosen import check_key, is_told, value_of
from oneshot_fl.reporting.tables.estimates import FEWEST_FOR_INTERVAL, estimate
from oneshot_fl.reporting.tables.format import Sheet, interval, percent
from oneshot_fl.reporting.tables.measures import Measure
from oneshot_fl.reporting.tables.own import (
    comparable,
    digests,
    labels_in,
    labels_meant,
    names_of,
    not_the_same,
    rank,
    rows_of,
    unmeasured,
)
from oneshot_fl.reporting.tables.pairing import (
    Outcomes,
    comparable_sets,
    not_compared,
    outcomes,
    seeds_of_all,
    shared_seeds,
)
from oneshot_fl.reporting.tables.ranking import (
    FEWEST_BLOCKS,
    FEWEST_ROWS,
    Ranking,
    ranked,
    ranks_in,
    rows_of_most_runs,
    same_order,
)
from oneshot_fl.reporting.tables.run import Run


@dataclass(frozen=True)
class Place:
    """One setting, and by seed what each of the ranked rows reached there."""

    name: str
    runs: dict[str, dict[int, Run]]
    """By row and seed, of the ranked rows."""
    seeds: dict[int, dict[str, float]]
    """Seeds in which all of them are done."""

    @property
    def means(self) -> dict[str, float]:
        """By row, over the seeds."""
        blocks = list(self.seeds.values())
        return {row: statistics.fmean(block[row] for block in blocks) for row in blocks[0]}


@dataclass(frozen=True)
class Field:
    """The settings in which all ranked rows have a seed on one partition, and what was left out."""

    rows: list[str]
    places: list[Place]
    left_out: int
    """Settings that have some of the rows, and no seed with all of them."""
    seeds_left_out: int
    """Of the settings that are ranked, seeds that have some of the rows and not all."""
    not_compared: list[str]
    """Lines on seeds that are left out as the rows' partitions differ."""
    others: list[str]
    """Rows that are not ranked, where nobody has said which are."""
    taken: dict[str, list[str]]
    """By a method that is no label itself, the rows of it that were taken."""

    @property
    def blocks(self) -> list[dict[str, float]]:
        """One for every setting and seed."""
        return [block for place in self.places for block in place.seeds.values()]

    @cached_property
    def ranking(self) -> Ranking:
        """Over settings and seeds."""
        return ranked(self.blocks)


def field_of(runs: Iterable[Run], measure: Measure, wanted: Sequence[str] = ()) -> Field:
    """What can be ranked.

    Args:
        measure: what is ranked by, of the server.
        wanted: methods or labels; without any, the rows with which most runs are ranked.

    Raises:
        OneshotError: fewer than three rows, or fewer than two seeds and settings that have all of them; a wanted row
            is none, or a method of which one setting has several.
    """
    groups = comparable(runs)
    values = [_values(group, measure) for group in groups]
    rows = list(dict.fromkeys(wanted)) or sorted(rows_of_most_runs(chain(*map(comparable_sets, values))), key=rank)
    meant = _meant(rows, [list(rows_of(group)) for group in groups])
    if len(rows) < FEWEST_ROWS:
        raise OneshotError(_too_few(rows, unmeasured([run for group in groups for run in group], measure)))
    ranked_rows = [{row: _of(own, meant[row]) for row in rows} for own in values]
    complete = [n for n, own in enumerate(ranked_rows) if seeds_of_all(own.values())]
    names = dict(zip(complete, _names([groups[n] for n in complete]), strict=True))
    places = [Place(names[n], _ranked_runs(groups[n], meant), _shared(ranked_rows[n])) for n in complete]
    unlike = [f"{names[n]}: {line}" for n in complete for line in not_compared(ranked_rows[n])]
    if sum(len(place.seeds) for place in places) < FEWEST_BLOCKS:
        raise OneshotError(_too_few_blocks(rows, unlike))
    return Field(
        rows=rows,
        places=[place for place in places if place.seeds],
        left_out=sum(bool(_seeds(own)) for own in ranked_rows) - len(complete),
        seeds_left_out=sum(len(_seeds(ranked_rows[n])) - len(seeds_of_all(ranked_rows[n].values())) for n in complete),
        not_compared=unlike,
        others=[] if wanted else sorted(set().union(*values) - set(rows), key=rank),
        taken=_taken(meant, labels_in(groups[n] for n in complete)),
    )


def _too_few(rows: Sequence[str], causes: Sequence[str]) -> str:
    found = f"--ranks: {len(rows)} rows to rank; "
    return found + " ".join(causes or [f"name {FEWEST_ROWS} or more by --row, or run more methods"]).rstrip(".")


def _too_few_blocks(rows: Sequence[str], unlike: Sequence[str]) -> str:
    where = " ".join([" on one partition.", *unlike]).rstrip(".") if unlike else ""
    return f"--ranks: no two seeds or settings have all of {', '.join(rows)}{where}; name fewer by --row"


def _values(group: list[Run], measure: Measure) -> dict[str, Outcomes]:
    """By label, signed so that more is better."""
    rows = {label: outcomes(runs, measure.server) for label, runs in rows_of(group).items()}
    return {label: row.times(measure.sign) for label, row in rows.items() if row.values}


def _seeds(rows: dict[str, Outcomes]) -> set[int]:
    """Those of any row of a setting."""
    return set[int]().union(*(row.values for row in rows.values()))


def _meant(rows: Sequence[str], settings: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """The labels that each row stands for in settings with these labels: itself, else those of the method."""
    known = list(dict.fromkeys(label for labels in settings for label in labels))
    meant = {row: labels_meant(row, known) for row in rows}
    for row, labels in meant.items():
        if any(len(set(labels) & set(others)) > 1 for others in settings):
            raise OneshotError(f"--row {row}: is several rows of one setting; choose from {', '.join(labels)}")
    return meant


def _of(rows: dict[str, Outcomes], labels: Sequence[str]) -> Outcomes:
    """What the one of these labels reached that a setting has; nothing where it has none."""
    return next((rows[label] for label in labels if label in rows), Outcomes({}))


def _taken(meant: dict[str, list[str]], there: Sequence[str]) -> dict[str, list[str]]:
    """The labels that stand for a row that is none itself, of those that are there."""
    return {row: [label for label in labels if label in there] for row, labels in meant.items() if labels != [row]}


def _ranked_runs(group: list[Run], meant: dict[str, list[str]]) -> dict[str, dict[int, Run]]:
    """By row and seed the runs of a setting, in which a row is one label at most."""
    there = rows_of(group)
    return {
        row: {run.seed: run for label in labels for run in there.get(label, []) if run.summary}
        for row, labels in meant.items()
    }


def _shared(rows: dict[str, Outcomes]) -> dict[int, dict[str, float]]:
    """By seed the values of all rows, for the seeds that all of them have on one partition."""
    return {seed: {row: own.values[seed] for row, own in rows.items()} for seed in shared_seeds(rows.values())}


def _names(groups: Sequence[list[Run]]) -> list[str]:
    short = [f"{run.data}, {run.split}, {run.architectures}" for run, *_ in groups]
    return names_of(short, groups)


def rank_sheets(field: Field, measure: Measure, by: Sequence[str] = ()) -> list[Sheet]:
    """Average ranks with the tests; ranks in every setting; paired differences of every two rows.

    Args:
        by: settings (`chosen.FACTS`, or dotted keys) for each of which ranks are told by its values, too.

    Raises:
        OneshotError: a setting is none, or has one value in all blocks.
    """
    by_value = [_by_value(field, key) for key in by]
    return [_averages(field, measure), *by_value, _by_setting(field), _differences(field, measure.sign)]


def _averages(field: Field, measure: Measure) -> Sheet:
    ranking, each = field.ranking, [ranks_in(block) for block in field.blocks]
    first = {row: sum(ranks[row] == 1 for ranks in each) for row in ranking.ranks}
    records = [
        {"metric": measure.key, "row": row, "average_rank": value, "best_in": first[row]}
        for row, value in ranking.ranks.items()
    ]
    rows = [[row, f"{value:.2f}", str(first[row])] for row, value in ranking.ranks.items()]
    notes = [
        f"{measure.note}, {measure.header}; rank 1 is best.",
        f"Over settings and seeds: {_tested(ranking)}",
        *_over_settings(field),
        *(f"{row} stands for {', '.join(labels)}." for row, labels in field.taken.items()),
        *not_the_same([_by_row(place, without=field.taken) for place in field.places]),
        *([f"Left out, as a row is missing: {field.left_out} settings."] if field.left_out else []),
        *([f"Left out of the others, as a row is missing: {field.seeds_left_out} seeds."] * bool(field.seeds_left_out)),
        *field.not_compared,
        *([f"Not ranked, as too few seeds and settings have them: {', '.join(field.others)}."] * bool(field.others)),
        *_mixed_code(field),
    ]
    return Sheet("Average ranks", ["", "average rank", f"alone best of {ranking.blocks}"], rows, notes, records)


def _by_row(place: Place, *, without: Container[str]) -> dict[str, Iterable[Run]]:
    return {row: runs.values() for row, runs in place.runs.items() if row not in without}


def _mixed_code(field: Field) -> list[str]:
    """Rows whose seeds were, in some setting, not all run by the same code."""
    mixed = [row for row in field.rows if any(len(digests(place.runs[row].values())) > 1 for place in field.places)]
    return [f"Seeds of one setting were run by code that differs: {', '.join(mixed)}."] if mixed else []


def _over_settings(field: Field) -> list[str]:
    if len(field.places) < FEWEST_BLOCKS:
        return []
    return [f"Over settings, seeds averaged first: {_tested(ranked([place.means for place in field.places]))}"]


def _tested(ranking: Ranking) -> str:
    alike = "; ".join(", ".join(names) for names in ranking.alike) or "none"
    return (
        f"{ranking.blocks} blocks, Friedman's chi-square {ranking.statistic:.2f} (p = {ranking.p:.3g}), Kendall's W "
        f"{ranking.agreement:.2f}; critical difference {ranking.critical:.2f} (Nemenyi, 95%). Not "
        f"significantly different: {alike}."
    )


TAU = "tau: Kendall's tau-b with the average ranks above, 1 for the same order."


def _by_setting(field: Field) -> Sheet:
    """A row for every setting: the mean ranks over its seeds, and how alike their order is to that of all blocks."""
    note = f"Mean ranks over the seeds; {TAU}"
    ranks = {place.name: list(place.seeds.values()) for place in field.places}
    return _ranks_in_parts("Ranks by setting", ranks, field, counted="seeds", notes=[note])


def _by_value(field: Field, key: str) -> Sheet:
    """A row for every value of a setting, over all blocks that have it, and how alike the orders of two values are."""
    check_key(
        f"--by {key}", key, [run for place in field.places for runs in place.runs.values() for run in runs.values()]
    )
    parts: dict[str, list[dict[str, float]]] = {}
    for place in field.places:
        for seed, block in place.seeds.items():
            parts.setdefault(_of_block(key, place, seed), []).append(block)
    if len(parts) == 1:
        raise OneshotError(f"--by {key}: is {next(iter(parts))} in all settings that are ranked")
    ranks = {value: _mean_ranks(blocks) for value, blocks in parts.items()}
    pairs = [f"{one} and {other} {same_order(ranks[one], ranks[other]):+.2f}" for one, other in combinations(ranks, 2)]
    notes = [
        f"Mean ranks over the blocks with each value, which may differ otherwise, too; {TAU}",
        f"Tau of two: {'; '.join(pairs)}.",
    ]
    return _ranks_in_parts(f"Ranks by {key}", parts, field, counted="blocks", notes=notes)


def _of_block(key: str, place: Place, seed: int) -> str:
    """The value of a setting in a block.

    Raises:
        OneshotError: not all rows that use it have the same there.
    """
    values = {str(value_of(runs[seed], key)): row for row, runs in place.runs.items() if is_told(runs[seed], key)}
    if len(values) > 1:
        told = " and ".join(f"{value} of {row}" for value, row in list(values.items())[:2])
        raise OneshotError(f"--by {key}: in {place.name}, seed {seed}, is {told}, so it tells nothing of a block")
    return next(iter(values), "not set")


def _ranks_in_parts(
    title: str, parts: dict[str, list[dict[str, float]]], field: Field, *, counted: str, notes: list[str]
) -> Sheet:
    """A row for every part of the blocks."""
    overall = field.ranking.ranks
    cells, records = [], []
    for name, blocks in parts.items():
        ranks = _mean_ranks(blocks)
        tau = same_order(overall, ranks)
        cells.append([name, str(len(blocks)), *(f"{ranks[row]:.2f}" for row in overall), f"{tau:+.2f}"])
        records.append({"row": name, counted: len(blocks), **ranks, "tau": tau})
    return Sheet(title, ["", counted, *overall, "tau"], cells, notes, records)


def _mean_ranks(blocks: Sequence[dict[str, float]]) -> dict[str, float]:
    each = [ranks_in(block) for block in blocks]
    return {row: statistics.fmean(ranks[row] for ranks in each) for row in each[0]}


def _differences(field: Field, sign: int) -> Sheet:
    """Row minus column over all blocks, above the diagonal, of the measure as it is told elsewhere."""
    ordered = list(field.ranking.ranks)
    pairs = len(ordered) * (len(ordered) - 1) // 2
    cells, records = [], []
    for n, first in enumerate(ordered[:-1]):
        each = [[sign * (block[first] - block[second]) for block in field.blocks] for second in ordered[n + 1 :]]
        gaps = [estimate(differences, comparisons=pairs) for differences in each]
        told = [f"{percent(gap, signed=True)} {interval(gap, signed=True)}".strip() for gap in gaps]
        cells.append([first, *[""] * n, *told])
        records += [
            {"row": first, "minus": second, "difference": gap.mean, "simultaneous_ci95_half_width": gap.half_width}
            for second, gap in zip(ordered[n + 1 :], gaps, strict=True)
        ]
    held = (
        f" The {pairs} intervals hold together at 95% (Bonferroni) on these settings; blocks of one setting are alike, "
        "so for others they are too narrow."
    )
    note = f"Points, mean ± standard deviation over blocks.{held if len(field.blocks) >= FEWEST_FOR_INTERVAL else ''}"
    return Sheet("Row minus column, paired", ["", *ordered[1:]], cells, [note], records)
