"""Which server model is best in a setting, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass

from oneshot_fl.reporting.page.settings import Setting
from oneshot_fl.reporting.tables.estimates import FEWEST_FOR_INTERVAL, Estimate, estimate, paired
from oneshot_fl.reporting.tables.measures import Measure

NAMED = 3
"""Rivals that the words on a verdict name."""
Values = Mapping[str, dict[int, float]]


@dataclass(frozen=True)
class Verdict:
    """The row with the highest mean, and every other row's distance to it."""

    best: str
    value: Estimate
    rivals: dict[str, Estimate | None]
    """By label, nearest first: best minus the rival over shared seeds; None where they share none. The intervals hold
    together at 95%."""
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
        return f"{ahead} told apart from {named}."


def _above_zero(gap: Estimate | None) -> bool:
    return gap is not None and gap.half_width is not None and gap.mean - gap.half_width > 0


def verdict_of(setting: Setting, measure: Measure) -> Verdict | None:
    """The verdict on a setting; None where no run is done.

    Where some row has the seeds that an interval takes, only such rows can be best: a mean of fewer is luck. Means are
    over the seeds that those rows share, where they are enough: one seed may be harder than another. Where a low
    figure is good (ECE), the best is the lowest.
    """
    values = {label: known for label in setting.rows if (known := setting.values(label, measure.server))}
    return verdict_on(values, lowest=measure.lower_is_better) if values else None


def verdict_on(values: Values, *, lowest: bool = False) -> Verdict:
    """The verdict on rows' values by seed; differences are how much better the best one is."""
    sign = -1 if lowest else 1
    means = {label: estimate(list(known.values())) for label, known in values.items()}
    enough = [label for label, known in means.items() if known.n >= FEWEST_FOR_INTERVAL]
    levels = _levels({label: values[label] for label in enough or means})
    best = max(levels, key=lambda label: sign * levels[label])
    pairs = len(values) * (len(values) - 1) // 2  # any two may turn out the best and one that it beats
    gaps = {label: _gap(values[best], known, sign, pairs) for label, known in values.items() if label != best}
    nearest = sorted(gaps, key=lambda label: gap.mean if (gap := gaps[label]) else float("inf"))
    return Verdict(best, means[best], {label: gaps[label] for label in nearest}, bool(enough))


def _levels(values: Values) -> dict[str, float]:
    """The mean of every row, over the seeds that all of them have if these are enough for an interval."""
    shared = set.intersection(*(set(known) for known in values.values()))
    if len(shared) < FEWEST_FOR_INTERVAL:
        return {label: estimate(list(known.values())).mean for label, known in values.items()}
    return {label: estimate([known[seed] for seed in sorted(shared)]).mean for label, known in values.items()}


def _gap(best: dict[int, float], other: dict[int, float], sign: int, comparisons: int) -> Estimate | None:
    own, rival = ({seed: sign * value for seed, value in known.items()} for known in (best, other))
    return paired(own, rival, comparisons=comparisons)
