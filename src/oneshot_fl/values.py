"""Types that say which values a setting may have: what a signature states is what is checked before a run begins.

`Annotated[float, ABOVE_ZERO]` is a float to Python and to type checkers; `config.rules` reads the rules beside it. The
first rule that does not hold is the one that is reported. Upper bounds are far above anything sensible: they keep a
mistyped number from filling the memory or running for ever.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class Rule:
    """What a value must be besides its type; `says` completes "must be ..."."""

    says: str
    holds: Callable[[Any], bool]


def at_least(least: int) -> Rule:
    """A whole number with a lower bound."""
    return Rule(f"a whole number of at least {least}", lambda value: value >= least)


def at_most(most: int) -> Rule:
    """A whole number with an upper bound."""
    return Rule(f"a whole number of at most {most:,}", lambda value: value <= most)


AT_LEAST_ONE = at_least(1)
AT_LEAST_ZERO = at_least(0)
NOT_HUGE = at_most(10**9)
NOT_TINY = Rule("a number of at least 1e-12", lambda value: value >= 1e-12)
FINITE = Rule("a number of at most 1e9", lambda value: value <= 1e9)
ABOVE_ZERO = Rule("a number above 0", lambda value: 0 < value < math.inf)
NOT_BELOW_ZERO = Rule("a number of at least 0", lambda value: 0 <= value < math.inf)
FINITE_OF_ANY_SIGN = Rule("a number between -1e9 and 1e9", lambda value: abs(value) <= 1e9)
BETWEEN_ZERO_AND_ONE = Rule("a number between 0 and 1", lambda value: 0 < value < 1)
BELOW_ONE = Rule("a number of at least 0 and below 1", lambda value: 0 <= value < 1)
SHARE = Rule("a number above 0 and at most 1", lambda value: 0 < value <= 1)
NOT_EMPTY = Rule("a list with at least one entry", lambda value: len(value) > 0)
DIFFERENT = Rule("a list of at least 2 different names", lambda value: len(set(value)) == len(value) >= 2)
WITHOUT_SLASH = Rule("a name without / and without control characters", lambda v: "/" not in v and v.isprintable())
A_PATH = Rule(
    "a path without control characters, in two kinds of quotes where it reads as a number ('\"2024_05\"')",
    lambda value: value.isprintable(),
)

Count = Annotated[int, AT_LEAST_ONE, NOT_HUGE]
CountOrZero = Annotated[int, AT_LEAST_ZERO, NOT_HUGE]
Seed = Annotated[int, AT_LEAST_ZERO, Rule("a whole number below 2**63", lambda value: value < 2**63)]
Positive = Annotated[float, ABOVE_ZERO, NOT_TINY, FINITE]
NotNegative = Annotated[float, NOT_BELOW_ZERO, FINITE]
Finite = Annotated[float, FINITE_OF_ANY_SIGN]
Fraction = Annotated[float, BETWEEN_ZERO_AND_ONE]
Share = Annotated[float, SHARE]
BelowOne = Annotated[float, BELOW_ONE]
LearningRate = Annotated[float, ABOVE_ZERO, NOT_TINY, Rule("a number of at most 1000", lambda value: value <= 1000)]
Radius = Annotated[float, ABOVE_ZERO, Rule("a number of at most 1000", lambda value: value <= 1000)]
Name = Annotated[str, WITHOUT_SLASH]
"""A name that also becomes part of a path or a table."""
PathText = Annotated[str, A_PATH]

Clients = Annotated[int, AT_LEAST_ONE, at_most(10_000)]
BatchSize = Annotated[int, AT_LEAST_ONE, at_most(1_000_000)]
"""Images; also of what is kept in memory at once."""
Images = Annotated[int, AT_LEAST_ONE, at_most(10_000_000)]
Width = Annotated[int, AT_LEAST_ONE, at_most(16_384)]
"""Units or channels of a layer, or the length of a noise vector."""
Retries = Annotated[int, AT_LEAST_ONE, at_most(1_000_000)]
Spread = Annotated[float, NOT_BELOW_ZERO, Rule("a number of at most 10", lambda value: value <= 10)]
"""The sigma of a log-normal law."""
SIDE = Rule("a whole number between 8 and 1024", lambda value: 8 <= value <= 1024)
Side = Annotated[int, SIDE]
"""Pixels; the smallest that all models take to the largest that fits a CPU."""
Channels = Annotated[Literal[1, 3], Rule("1 (grey) or 3 (colour)", lambda value: value in (1, 3))]
Mean = Annotated[float, Rule("a number between 0 and 1", lambda value: 0 <= value <= 1)]
"""Of pixels in [0, 1]."""
Means = Annotated[list[Mean], NOT_EMPTY]
"""One number or one per channel."""
Deviation = Annotated[float, Rule("a number between 0.001 and 10", lambda value: 0.001 <= value <= 10)]
"""Of pixels in [0, 1]."""
Deviations = Annotated[list[Deviation], NOT_EMPTY]
"""One number or one per channel."""
PixelMean = Mean | Means
PixelDeviation = Deviation | Deviations
"""As settings of a data set have them: one number need be no list."""
Widths = Annotated[list[Width], NOT_EMPTY]
Label = str | int
"""A name that may be a number, for instance of a folder."""
Names = Annotated[list[Label], DIFFERENT]


def _is_torchvisions(name: str) -> bool:
    from torchvision import models

    return name in models.list_models(module=models)


TorchvisionName = Annotated[str, Rule("a classifier of torchvision.models, for instance densenet121", _is_torchvisions)]


def whole_part(share: float, count: int) -> int:
    """How many of `count` a share is, rounded down: 29 of 100 for 0.29, though 0.29 * 100 is below that as a float."""
    return math.floor(round(share * count, 6))
