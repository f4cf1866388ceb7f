import pytest

from oneshot_fl.reporting.tables.curves import curve_of


def _with(run, accuracies):
    run.summary["rounds"] = [{"round": n, "accuracy": value} for n, value in enumerate(accuracies, 1)]
    return run


def test_mean_and_spread_over_the_seeds_that_are_done(make_run):
    runs = [_with(make_run(), [0.2, 0.4]), _with(make_run(seed=1), [0.4, 0.8]), make_run(None, seed=2)]
    curve = curve_of(runs)
    assert (curve.rounds, curve.n) == ([1, 2], 2)
    assert curve.mean == pytest.approx([0.3, 0.6])
    assert curve.spread == pytest.approx([0.02**0.5, 0.08**0.5])


def test_one_seed_has_no_spread_and_no_rounds_make_no_curve(make_run):
    assert curve_of([_with(make_run(), [0.2])]).spread is None
    assert curve_of([_with(make_run(), []), make_run(None, seed=1)]) is None


def test_of_unequal_runs_what_all_have(make_run):
    curve = curve_of([_with(make_run(), [0.2, 0.4, 0.5]), _with(make_run(seed=1), [0.4])])
    assert curve.rounds == [1]
    assert curve.mean == pytest.approx([0.3])
