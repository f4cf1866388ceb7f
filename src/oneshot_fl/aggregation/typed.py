"""What somebody types for `oneshot-fl pack`, as values that a model file may hold, and for `oneshot-fl aggregate`."""

import csv
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from oneshot_fl.data.class_names import class_name
from oneshot_fl.errors import OneshotError

PYTHONS = {"True": True, "False": False, "None": None}
"""As Python writes them; as texts all three would be true."""


def class_names(option: str, text: str) -> list[str]:
    """Names between commas; one that has a comma itself stands between double quotes.

    Raises:
        OneshotError: there is a line break in it.
    """
    try:
        return [class_name(each) for each in next(csv.reader([text], skipinitialspace=True))]
    except csv.Error as error:
        raise OneshotError(f"{option}: must be names with commas between them, in one line") from error


def numbers(option: str, text: str) -> list[float]:
    """Numbers between commas; whole ones as such.

    Raises:
        OneshotError: one is no number, or not finite.
    """
    try:
        return [_number(each, f"{option}={text}") for each in text.split(",")]
    except ValueError as error:
        raise OneshotError(f"{option}={text}: must be numbers with commas between them") from error


def argument(text: str) -> tuple[str, Any]:
    """`key=value`, the value in JSON, `True`, `False` or `None`, and as text where it is none of these.

    Raises:
        OneshotError: it is nothing of that kind, or holds a number that is not finite.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise OneshotError(f"--arg {text}: must be KEY=VALUE")
    try:
        return key, _value(value, f"--arg {text}")
    except ValueError:
        return key, PYTHONS.get(value, value)


def _number(text: str, option: str) -> float:
    """As Python reads it, `.5` and `1.` too; a whole one stays one."""
    try:
        return int(text)
    except ValueError:
        return _finite(text, option)


def _value(text: str, option: str) -> Any:
    """What JSON says; Python also reads NaN and 1e999, which no file may hold."""
    finite = partial(_finite, option=option)
    return json.loads(text, parse_float=finite, parse_constant=finite)


def _finite(word: str, option: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise OneshotError(f"{option}: {word} is no finite number")
    return number


def folder_of_test(option: Path | None, words: Sequence[str]) -> Path | None:
    """The folder of test images: the option's, or that of the last `test=` among the words.

    Raises:
        OneshotError: a word names none, or another one than the option.
    """
    told = [word.removeprefix("test=") for word in words if word.startswith("test=")]
    if "" in told:
        raise OneshotError("test=: names no folder; give one with a folder of images for each class, or leave it out")
    if not told:
        return option
    if option not in (None, Path(told[-1])):
        raise OneshotError(f"--test {option}: test={told[-1]} is another folder; give one of them")
    return Path(told[-1])
