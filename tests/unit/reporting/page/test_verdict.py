import pytest
from scipy.stats import t

from oneshot_fl.reporting.page.verdict import verdict_on
from oneshot_fl.reporting.tables.pairing import Outcomes


def _seeds(*values):
    return Outcomes(dict(enumerate(values)))


def test_better_than_all_where_every_interval_leaves_out_zero():
    verdict = verdict_on({"a": _seeds(0.9, 0.8, 0.85), "b": _seeds(0.5, 0.41, 0.44), "c": _seeds(0.3, 0.2, 0.26)})
    assert verdict.best == "a"
    assert list(verdict.rivals) == ["b", "c"]  # the nearest first
    assert verdict.rivals["b"].mean == pytest.approx(0.4)
    assert verdict.words == "Better than all others."


def test_a_rival_whose_interval_holds_zero_is_named():
    verdict = verdict_on({"a": _seeds(0.9, 0.8, 0.85), "b": _seeds(0.7, 0.9, 0.8), "c": _seeds(0.3, 0.2, 0.26)})
    assert verdict.words == "Better than 1 of 2 others; not significantly different from b."


def test_the_more_rivals_the_wider_the_intervals():
    few = verdict_on({"a": _seeds(0.9, 0.8, 0.85), "b": _seeds(0.5, 0.5, 0.4)})
    others = {name: _seeds(0.1, 0.1, 0.2) for name in "cdef"}
    many = verdict_on({"a": _seeds(0.9, 0.8, 0.85), "b": _seeds(0.5, 0.5, 0.4), **others})
    assert many.rivals["b"].half_width > 2 * few.rivals["b"].half_width


def test_a_lucky_seed_does_not_win_against_rows_with_enough_of_them():
    verdict = verdict_on({"lucky": _seeds(0.99), "steady": _seeds(0.6, 0.61, 0.62)})
    assert verdict.best == "steady"
    assert verdict.words == "Not significantly different from lucky."


def test_hard_seeds_that_only_one_has_do_not_decide():
    more = _seeds(0.85, 0.86, 0.87, 0.6, 0.6)
    verdict = verdict_on({"a": _seeds(0.8, 0.81, 0.82), "b": more})
    assert verdict.best == "b"
    assert verdict.rivals["a"].mean == pytest.approx(0.05)


def test_nothing_is_told_with_too_few_seeds():
    assert verdict_on({"a": _seeds(0.9), "b": _seeds(0.1)}).words == "Not told: fewer than 3 seeds."
    assert verdict_on({"a": _seeds(0.9, 0.8, 0.7)}).words == "Nothing to compare it with yet."


def test_rows_without_a_common_seed_are_not_told_apart():
    verdict = verdict_on({"a": _seeds(0.9, 0.9, 0.9), "b": Outcomes({3: 0.1, 4: 0.1, 5: 0.1})})
    assert verdict.rivals == {"b": None}
    assert verdict.words == "Not significantly different from b."


def test_seeds_on_other_partitions_neither_count_for_the_best_nor_against_a_rival():
    """Seed 3 is on another partition for each: over the other three "b" is ahead by 0.05, over all "a" by 0.0625."""
    first = Outcomes({0: 0.8, 1: 0.81, 2: 0.82, 3: 0.9}, dict.fromkeys(range(4), "p"))
    second = Outcomes({0: 0.85, 1: 0.86, 2: 0.87, 3: 0.5}, {**dict.fromkeys(range(3), "p"), 3: "q"})
    verdict = verdict_on({"a": first, "b": second})
    assert verdict.best == "b"
    assert (verdict.rivals["a"].mean, verdict.rivals["a"].n) == (pytest.approx(0.05), 3)


def test_where_low_is_good_the_lowest_is_best():
    verdict = verdict_on({"a": _seeds(0.3, 0.32, 0.31), "b": _seeds(0.1, 0.11, 0.12)}, lowest=True)
    assert verdict.best == "b"
    assert verdict.rivals["a"].mean == pytest.approx(0.2)
    assert verdict.words == "Better than the other."


def test_many_rivals_are_counted():
    alike = {name: _seeds(0.5, 0.6, 0.4) for name in "abcdef"}
    assert verdict_on(alike).words == "Not significantly different from b, c, d and 2 more."


def test_what_beats_some_of_many_is_sure_for_every_two_of_them():
    """Of four rows there are six pairs: half the width of a t interval at 1 - 0.05 / 6 with four degrees of freedom."""
    rows = {"a": _seeds(0.9, 0.8, 0.85, 0.87, 0.82), "b": _seeds(0.5, 0.5, 0.4, 0.45, 0.47)}
    rows |= {name: _seeds(0.1, 0.1, 0.2, 0.15, 0.12) for name in "cd"}
    gap = verdict_on(rows).rivals["b"]
    assert gap.half_width == pytest.approx(float(t.ppf(1 - 0.05 / 6 / 2, df=4)) * gap.std / 5**0.5)
