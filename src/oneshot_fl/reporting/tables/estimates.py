"""Means over seeds and how far to trust them."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST_FOR_INTERVAL = 3
"""With two seeds Student's t is 12.7, and the interval says nothing."""


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds; one seed alone has no spread, fewer than three have no interval."""

    mean: float
    n: int
    std: float | None
    """Sample standard deviation."""
    half_width: float | None
    """Of the 95% confidence interval, by Student's t with n - 1 degrees of freedom."""


def estimate(values: Sequence[float], *, comparisons: int = 1) -> Estimate:
    """The estimate of at least one value, in the values' unit.

    Args:
        values: one for every seed.
        comparisons: how many intervals are to hold together at 95%; each is wider by Bonferroni's rule.
    """
    mean, n = statistics.mean(values), len(values)
    if n == 1:
        return Estimate(mean, n, None, None)
    std = statistics.stdev(values)
    if n < FEWEST_FOR_INTERVAL:
        return Estimate(mean, n, std, None)
    from scipy.stats import t

    return Estimate(mean, n, std, float(t.ppf(1 - 0.025 / comparisons, n - 1)) * std / math.sqrt(n))
