import pytest

from oneshot_fl.reporting.tables.estimates import estimate
from oneshot_fl.reporting.tables.format import interval, percent


def test_mean_spread_and_students_interval():
    # 0.1, 0.2, 0.3: mean 0.2, sample variance 0.01, t(0.975, 2) = 4.3027, half width 4.3027 * 0.1 / sqrt(3)
    value = estimate([0.1, 0.2, 0.3])
    assert (value.mean, value.n, value.std) == (pytest.approx(0.2), 3, pytest.approx(0.1))
    assert value.half_width == pytest.approx(0.24841, abs=1e-5)
    assert percent(value) == "20.00 ± 10.00"
    assert interval(value) == "[0.00, 44.84]"  # ends where accuracies do
    assert interval(value, signed=True) == "[-4.84, +44.84]"
    assert interval(estimate([0.7, 0.8, 0.9])) == "[55.16, 100.00]"


def test_one_seed_has_no_spread_and_no_interval():
    assert percent(estimate([0.125]), signed=True) == "+12.50"
    assert interval(estimate([0.125])) == ""


def test_two_seeds_have_a_spread_but_no_interval():
    value = estimate([0.6, 0.7])
    assert percent(value) == "65.00 ± 7.07"
    assert value.half_width is None
    assert interval(value) == ""


def test_a_difference_ends_at_a_hundred_points():
    assert interval(estimate([-0.9, 0.0, 0.9]), signed=True) == "[-100.00, +100.00]"


def test_intervals_that_hold_together_are_those_of_a_higher_level():
    values = [0.1, 0.2, 0.4]
    # Student's t with two degrees of freedom: 4.3027 leaves 2.5% above it, 6.2053 leaves 1.25%
    alone, together = estimate(values), estimate(values, comparisons=2)
    assert together.half_width / alone.half_width == pytest.approx(6.2053 / 4.3027, rel=1e-4)
