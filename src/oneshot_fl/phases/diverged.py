"""The line that says that the server's model diverged, and which learning rates to lower."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from oneshot_fl.errors import OneshotError

RATE_KEYS = {"student": "distill.student_optimizer.lr", "warm_up": "method.warm_up.optimizer.lr"}
RATE_OF_SOURCES = "distill.generator_optimizer.lr"
"""The keys of learning rates, by what they train, unless a method has its own."""


def require_finite(
    row: Mapping[str, Any], *, student: Iterable[str], rates: Mapping[str, float], rate_keys: Mapping[str, str]
) -> None:
    """Nothing where all is finite; what is not is told at once, and neither trained on nor stored.

    Args:
        row: a round's, with the loss terms of whoever has some by their names.
        student: what of the student itself is not finite.
        rates: learning rates, by what they train.
        rate_keys: of those, where they are not `RATE_OF_SOURCES`.

    Raises:
        OneshotError: a loss term or something of the student is not finite.
    """
    bad = [*_bad_terms(row), *student]
    if not bad:
        return
    told = ", ".join(f"{who} {rate}" for who, rate in rates.items())
    trained = dict.fromkeys(("student", *rates))  # the likeliest first
    keys = dict.fromkeys(rate_keys.get(who, RATE_OF_SOURCES) for who in trained)
    raise OneshotError(
        f"server: diverged in round {row['round']} (not finite: {', '.join(bad)}); lower a learning rate of the "
        f"server ({told}): {' or '.join(keys)}"
    )


def _bad_terms(row: Mapping[str, Any]) -> list[str]:
    terms = ((who, values) for who, values in row.items() if isinstance(values, Mapping))
    return [f"{who} {name}" for who, values in terms for name, value in values.items() if not math.isfinite(value)]
