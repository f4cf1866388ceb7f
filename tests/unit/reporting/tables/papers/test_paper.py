from fractions import Fraction

import pytest

from oneshot_fl.reporting.tables.papers.paper import ABSENT, PRESENT, grants, of_symbols

SYMBOLS = {"a": ("method.a", Fraction(1)), "eps": ("method.b", Fraction(1, 2))}


def test_symbols_ask_for_our_keys_in_our_units():
    assert of_symbols("a=0.5 eps=8/255", SYMBOLS) == {"method.a": 0.5, "method.b": pytest.approx(4 / 255)}


@pytest.mark.parametrize("variant", ["c=1", "a=learnable", "a"])
def test_what_we_cannot_set_asks_for_nothing(variant):
    assert of_symbols(variant, SYMBOLS) is None


@pytest.mark.parametrize(
    ("value", "wanted", "granted"),
    [(0.00392, 4 / 1020, True), (0.5, 0.6, False), (None, 0.0, True), (None, ABSENT, True), ({"x": 1}, PRESENT, True)],
)
def test_a_value_is_granted_as_exactly_as_papers_print_it(value, wanted, granted):
    assert grants(value, wanted) is granted
