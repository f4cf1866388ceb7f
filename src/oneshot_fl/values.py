"""Types that say which values a setting may have: what a signature states is what is checked before a run begins.

`Annotated[float, ABOVE_ZERO]` is a float to Python and to type checkers; `config.rules` reads the rule beside it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Rule:
    """What a value must be besides its type; `says` completes "must be ..."."""

    says: str
    holds: Callable[[Any], bool]


AT_LEAST_ONE = Rule("a whole number of at least 1", lambda value: value >= 1)
AT_LEAST_ZERO = Rule("a whole number of at least 0", lambda value: value >= 0)
ABOVE_ZERO = Rule("a number above 0", lambda value: 0 < value < math.inf)
NOT_BELOW_ZERO = Rule("a number of at least 0", lambda value: 0 <= value < math.inf)
BETWEEN_ZERO_AND_ONE = Rule("a number between 0 and 1", lambda value: 0 < value < 1)
SHARE = Rule("a number above 0 and at most 1", lambda value: 0 < value <= 1)

Count = Annotated[int, AT_LEAST_ONE]
CountOrZero = Annotated[int, AT_LEAST_ZERO]
Seed = Annotated[int, AT_LEAST_ZERO]
Positive = Annotated[float, ABOVE_ZERO]
NotNegative = Annotated[float, NOT_BELOW_ZERO]
Fraction = Annotated[float, BETWEEN_ZERO_AND_ONE]
Share = Annotated[float, SHARE]
