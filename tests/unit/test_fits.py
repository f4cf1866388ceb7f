"""Values against type hints: what is said completes "must be"."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pytest

from oneshot_fl.fits import A_PART, is_finite, problem, shown
from oneshot_fl.values import Rule

EVEN = Annotated[int, Rule("an even number", lambda value: value % 2 == 0)]


@dataclasses.dataclass
class Settings:
    epochs: int


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3, int),
        (3, float),
        (0.5, float),
        (False, bool),
        ("a", str),
        ("a/b", Path),
        (None, None),
        (None, int | None),
        (2, EVEN),
        (None, EVEN | None),
        ("low", Literal["low", "high"]),
        ([1, 2], list[int]),
        ((1, 2), tuple[int, ...]),
        ([1, "a"], tuple[int, str]),
        ([], list[int]),
        ({"a": 1}, dict[str, int]),
        ({"epochs": "many"}, Settings),  # whose fields are looked at by its own table
        ({"_target_": "a.B"}, Callable[[], int]),
        ({"_target_": "a.B"}, Settings | None),
        (object(), Any),
        ("anything", TypeVar("T")),
        ("anything", "a name that nothing resolves"),
    ],
)
def test_what_fits(value, hint):
    assert problem(value, hint) is None


@pytest.mark.parametrize(
    ("value", "hint", "says"),
    [
        (True, int, "a whole number"),
        (2.0, int, "a whole number"),
        (2**63, int, "a whole number"),
        (float("nan"), float, "a number"),
        (10**400, float, "a number"),
        (True, float, "a number"),
        (1, bool, "true or false"),
        ("  ", str, "a text that is not empty"),
        ("", Path, "a path"),
        (0, None, "null"),
        (3, EVEN, "an even number"),
        ("three", EVEN, "an even number"),
        ([2], EVEN, "a whole number"),  # a list is further off than any rule
        ("mid", Literal["low", "high"], "one of low, high"),
        (1, Literal[True], "True"),  # equal, but of another type
        ("a", int | None, "a whole number, or null"),
        ("a", int | float | None, "a whole number, or a number, or null"),
        (1, list[int], "a list, each entry a whole number"),
        ([1, "a"], list[int], "a list, each entry a whole number"),
        ([1], tuple[int, str], "a list of 2, each entry a whole number"),
        ([1, 2], tuple[int, str], "a list of 2, each entry a text that is not empty"),
        ("ab", Iterable[int], "a list, each entry a whole number"),
        (1, Mapping[str, int], "a dictionary {name: value}"),
        ({"a": "b"}, dict[str, int], "a dictionary, each value a whole number"),
        ({1: 1}, dict[str, int], "a dictionary, each name a text that is not empty"),
        (3, Settings, "a group of settings"),
        ({"name": "x"}, Callable[[], int], A_PART),
    ],
)
def test_what_does_not_fit_and_what_would(value, hint, says):
    assert problem(value, hint) == says


@pytest.mark.parametrize(
    ("value", "finite"), [(1.5, True), (10**308, True), (10**400, False), (float("inf"), False), (float("nan"), False)]
)
def test_a_number_that_arithmetic_can_go_on_with(value, finite):
    assert is_finite(value) is finite


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("3", "'3'"),
        ("1e3", "'1e3'"),
        ("Yes", "'Yes'"),
        ("", "''"),
        ("~", "'~'"),
        ("cnn2", "cnn2"),
        ([1, "a"], "[1, 'a']"),
        ("two\nlines", "two lines"),
        ("bell\a", "bell?"),
        ("a" * 80, "a" * 80),
        ("a" * 81, "a" * 77 + "..."),
    ],
)
def test_a_value_is_shown_on_one_line_as_yaml_would_read_it(value, text):
    assert shown(value) == text
