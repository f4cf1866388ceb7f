"""The settings of a sweep: groups of runs that may be compared, and what each row of one found."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import count, permutations
from typing import Any

from oneshot_fl.reporting.tables.conditions import conditions
from oneshot_fl.reporting.tables.differences import Settings, listed, without_unset
from oneshot_fl.reporting.tables.estimates import Estimate, estimate
from oneshot_fl.reporting.tables.measures import Measure
from oneshot_fl.reporting.tables.own import comparable, rank, rows_of, set_apart, shared_of, titles, with_own
from oneshot_fl.reporting.tables.pairing import Outcomes, Value, not_compared, outcomes, paired
from oneshot_fl.reporting.tables.run import Run

Json = dict[str, Any]
LONGEST = 60
"""Characters of a setting's name."""
UNSET = "nothing that the others set"
"""What sets a setting apart in which all is null that differs."""


@dataclass(frozen=True)
class Setting:
    """Runs in which all but method and seed agrees."""

    number: int
    name: str
    """Data, partition and conditions, short; of settings that would be called alike also what they differ in."""
    apart: str
    """What a number in the name stands for; empty where there is none."""
    title: str
    rows: dict[str, list[Run]]
    """By label, in the order of the papers' tables."""

    @cached_property
    def runs(self) -> list[Run]:
        """All of them."""
        return [run for runs in self.rows.values() for run in runs]

    @property
    def data(self) -> str:
        """The data set."""
        return self.runs[0].data

    @property
    def partition(self) -> str:
        """The partition with how uneven it is."""
        return self.runs[0].split

    def outcomes(self, label: str, value: Value) -> Outcomes:
        """What one row's finished runs tell, by seed."""
        return outcomes(self.rows[label], value)

    def values(self, label: str, value: Value) -> dict[int, float]:
        """The same without the partitions."""
        return self.outcomes(label, value).values


def settings_of(runs: Iterable[Run]) -> list[Setting]:
    """The settings of all runs whose configuration is known, by data and partition."""
    groups = comparable(run for run in runs if run.settings)
    groups.sort(key=lambda group: (group[0].data, group[0].partition, group[0].spread))
    short = [", ".join([first.data, first.split, *conditions(first)]) for first, *_ in groups]
    names = map(_named, short, set_apart(short, shared_of(groups)), count(1))
    told = zip(names, titles(groups), map(rows_of, groups), strict=True)
    return [Setting(number, *name, title, _in_order(rows)) for number, (name, title, rows) in enumerate(told)]


def _named(short: str, own: Settings, number: int) -> tuple[str, str]:
    """A name that tells a setting apart; where that takes more than a line, a number, and what it stands for."""
    whole = with_own(short, own, "; ")
    return (
        (whole, "") if len(whole) <= LONGEST else (f"{short}, protocol {number}", listed(without_unset(own)) or UNSET)
    )


def _in_order(rows: dict[str, list[Run]]) -> dict[str, list[Run]]:
    return {label: rows[label] for label in sorted(rows, key=rank)}


def labels_of(settings: Iterable[Setting]) -> list[str]:
    """The labels of all rows, in the order of the papers' tables."""
    return sorted({label for setting in settings for label in setting.rows}, key=rank)


def cells_of(setting: Setting, measure: Measure) -> list[Json]:
    """One entry for each row: its mean and spread, or how many of its runs are not done."""
    cells = []
    for label, runs in setting.rows.items():
        values = list(setting.values(label, measure.server).values())
        missing = sum(run.status != "done" for run in runs)
        told = _told(estimate(values)) if values else {"n": 0}
        cells.append({"s": setting.number, "m": label, **told, "missing": missing})
    return cells


def differences_of(setting: Setting, measure: Measure) -> list[Json]:
    """For every two rows the first minus the second, over the seeds that both have on one partition."""
    known = _servers(setting, measure)
    return [
        {"s": setting.number, "m": first, "base": second, **_told(difference)}
        for first, second in permutations(known, 2)
        if (difference := paired(known[first], known[second]))
    ]


def _servers(setting: Setting, measure: Measure) -> dict[str, Outcomes]:
    return {label: setting.outcomes(label, measure.server) for label in setting.rows}


def left_out(settings: Iterable[Setting], measure: Measure) -> list[str]:
    """A line for all rows of a setting that are not compared in some seeds, as their partitions differ there."""
    return [f"{each.name}: {line}" for each in settings for line in not_compared(_servers(each, measure))]


def _told(value: Estimate) -> Json:
    """An estimate for the page, in percent."""
    spread = {"std": value.std, "half": value.half_width}
    parts = {"mean": value.mean, **{name: part for name, part in spread.items() if part is not None}}
    return {"n": value.n, **{name: round(100 * part, 3) for name, part in parts.items()}}


def gaps_of(setting: Setting, measure: Measure) -> list[Json]:
    """For every row the ensemble that is best in the mean, minus the server: what distillation lost."""
    found = []
    for label in setting.rows:
        server = setting.outcomes(label, measure.server)
        ensembles = _ensembles(setting, label, measure)
        if not server.values or not ensembles:
            continue
        best = max(ensembles, key=lambda name: _over_seeds(ensembles[name]).mean)
        if gap := paired(ensembles[best], server):
            levels = {"server": _over_seeds(server), "level": _over_seeds(ensembles[best])}
            means = {name: round(100 * each.mean, 3) for name, each in levels.items()}
            found.append({"s": setting.number, "m": label, "ensemble": best, **_told(gap), **means})
    return found


def _over_seeds(row: Outcomes) -> Estimate:
    return estimate(list(row.values.values()))


def _ensembles(setting: Setting, label: str, measure: Measure) -> dict[str, Outcomes]:
    """By the ensemble's name the values by seed, of those that all finished runs of the row tell."""
    done = [measure.ensembles(run.summary) for run in setting.rows[label] if run.summary]
    names = [name for name in (done[0] if done else {}) if all(name in each for each in done)]

    def of(name: str) -> Value:
        return lambda summary: measure.ensembles(summary)[name]

    return {name: setting.outcomes(label, of(name)) for name in names}
