"""What somebody types for `oneshot-fl pack`, as values that a model file may hold."""

import json
import math
from typing import Any

from oneshot_fl.errors import OneshotError


def numbers(option: str, text: str) -> list[float]:
    """Numbers between commas; whole ones as such.

    Raises:
        OneshotError: one is no number, or not finite.
    """
    try:
        return [_value(each, f"{option}={text}") for each in text.split(",")]
    except ValueError as error:
        raise OneshotError(f"{option}={text}: must be numbers with commas between them") from error


def argument(text: str) -> tuple[str, Any]:
    """`key=value`, the value in JSON or, where it is none, as text.

    Raises:
        OneshotError: it is nothing of that kind, or holds a number that is not finite.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise OneshotError(f"--arg {text}: must be KEY=VALUE")
    try:
        return key, _value(value, f"--arg {text}")
    except ValueError:
        return key, value


def _value(text: str, option: str) -> Any:
    """What JSON says; Python also reads NaN and 1e999, which no file may hold."""

    def finite(word: str) -> float:
        number = float(word)
        if not math.isfinite(number):
            raise OneshotError(f"{option}: {word} is no finite number")
        return number

    return json.loads(text, parse_float=finite, parse_constant=finite)
