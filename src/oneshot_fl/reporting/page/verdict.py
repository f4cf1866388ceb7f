"""Which server model is best in a setting, and how sure that is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oneshot_fl.reporting.page.settings import Setting
from oneshot_fl.reporting.tables.estimates import FEWEST_FOR_INTERVAL, Estimate, estimate
from oneshot_fl.reporting.tables.measures import Measure
from oneshot_fl.reporting.tables.pairing import Outcomes, paired, shared_seeds

NAMED = 3
"""Rivals that the words on a verdict name."""
Rows = Mapping[str, Outcomes]


@dataclass(frozen=True)
class Verdict:
    """The row with the highest mean, and every other row's distance to it."""

    best: str
    value: Estimate
    rivals: dict[str, Estimate | None]
    """By label, nearest first: best minus the rival over the seeds that both have on one partition; None where there is
    none. The intervals hold together at 95%."""
    enough: bool
    """Whether the best has the seeds that an interval takes."""

    @property
    def beaten(self) -> list[str]:
        """The rivals that it is better than, at 95% for all of them together."""
        return [label for label, gap in self.rivals.items() if _above_zero(gap)]

    @property
    def words(self) -> str:
        """How sure it is, in one sentence."""
        if not self.rivals:
            return "Nothing to compare it with yet."
        if not self.enough:
            return f"Not told: fewer than {FEWEST_FOR_INTERVAL} seeds."
        rest = [label for label in self.rivals if label not in self.beaten]
        if not rest:
            return "Better than all others." if len(self.rivals) > 1 else "Better than the other."
        ahead = f"Better than {len(self.beaten)} of {len(self.rivals)} others; not" if self.beaten else "Not"
        named = ", ".join(rest[:NAMED]) + (f" and {len(rest) - NAMED} more" if len(rest) > NAMED else "")
        return f"{ahead} significantly different from {named}."


def _above_zero(gap: Estimate | None) -> bool:
    return gap is not None and gap.half_width is not None and gap.mean - gap.half_width > 0


def verdict_of(setting: Setting, measure: Measure) -> Verdict | None:
    """The verdict on a setting; None where no run is done.

    Where some row has the seeds that an interval takes, only such rows can be best: a mean of fewer is luck. Means are
    over the seeds that those rows share, where they are enough: one seed may be harder than another. Where a low
    figure is good (ECE), the best is the lowest.
    """
    rows = {label: row for label in setting.rows if (row := setting.outcomes(label, measure.server)).values}
    return verdict_on(rows, lowest=measure.lower_is_better) if rows else None


def verdict_on(rows: Rows, *, lowest: bool = False) -> Verdict:
    """The verdict on rows, each with a value; differences are how much better the best one is."""
    sign = -1 if lowest else 1
    means = {label: _mean(row, row.values) for label, row in rows.items()}
    enough = [label for label, known in means.items() if known.n >= FEWEST_FOR_INTERVAL]
    levels = _levels({label: rows[label] for label in enough or means})
    best = max(levels, key=lambda label: sign * levels[label])
    pairs = len(rows) * (len(rows) - 1) // 2  # any two may turn out the best and one that it beats
    ahead, others = rows[best].times(sign), {label: row.times(sign) for label, row in rows.items() if label != best}
    gaps = {label: paired(ahead, row, comparisons=pairs) for label, row in others.items()}
    nearest = sorted(gaps, key=lambda label: gap.mean if (gap := gaps[label]) else float("inf"))
    return Verdict(best, means[best], {label: gaps[label] for label in nearest}, bool(enough))


def _levels(rows: Rows) -> dict[str, float]:
    """The mean of every row, over the seeds that all of them share if these are enough for an interval."""
    shared = shared_seeds(rows.values())
    enough = len(shared) >= FEWEST_FOR_INTERVAL
    return {label: _mean(row, shared if enough else row.values).mean for label, row in rows.items()}


def _mean(row: Outcomes, seeds: Iterable[int]) -> Estimate:
    return estimate([row.values[seed] for seed in seeds])
