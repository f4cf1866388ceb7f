import pytest

from oneshot_fl.reporting.tables.measures import measure_of
from oneshot_fl.reporting.tables.pairing import (
    Outcomes,
    comparable_sets,
    not_compared,
    outcomes,
    paired,
    seeds_of_all,
    shared_seeds,
)

LAST = measure_of("accuracy", which="last")


def test_paired_differences_are_over_shared_seeds():
    # seeds 1 and 2: 0.5 - 0.3 and 0.7 - 0.4
    difference = paired(Outcomes({0: 0.9, 1: 0.5, 2: 0.7}), Outcomes({1: 0.3, 2: 0.4, 3: 0.0}))
    assert (difference.mean, difference.n) == (pytest.approx(0.25), 2)
    assert paired(Outcomes({0: 0.1}), Outcomes({1: 0.1})) is None


def test_a_seed_whose_partitions_differ_is_in_no_difference():
    first = Outcomes({0: 0.9, 1: 0.5, 2: 0.7}, {0: "a", 1: "b", 2: "c"})
    # seed 0 alone was another partition: 0.5 - 0.3 and 0.7 - 0.4 are left
    difference = paired(first, Outcomes({0: 0.1, 1: 0.3, 2: 0.4}, {0: "z", 1: "b", 2: "c"}))
    assert (difference.mean, difference.n) == (pytest.approx(0.25), 2)
    assert paired(Outcomes({0: 0.9}, {0: "a"}), Outcomes({0: 0.1}, {0: "z"})) is None


def test_runs_that_do_not_tell_their_partition_are_paired_by_seed():
    told, untold = Outcomes({0: 0.9}, {0: "a"}), Outcomes({0: 0.5})
    assert paired(told, untold).mean == pytest.approx(0.4)
    assert shared_seeds([told, untold, Outcomes({0: 0.1}, {0: "z"})]) == []
    assert seeds_of_all([told, untold, Outcomes({0: 0.1}, {0: "z"})]) == [0]


def test_the_partition_is_that_of_the_run_and_only_of_seeds_with_a_value(make_run):
    runs = [make_run(0.5, seed=seed) for seed in (0, 1, 2)]
    for run, partition in zip(runs, ({"sha256": "a"}, {"sha256": "b"}, None), strict=True):
        run.summary["partition"] = partition
    runs[1].summary["server"]["accuracy_last"] = None
    assert outcomes(runs, LAST.server) == Outcomes({0: 0.5, 2: 0.5}, {0: "a"})
    assert outcomes([make_run(0.5), make_run(None, seed=1)], LAST.server) == Outcomes({0: 0.5})
    assert outcomes(runs, LAST.server).times(-1) == Outcomes({0: -0.5, 2: -0.5}, {0: "a"})


ROWS = {
    "fedavg": Outcomes({0: 0.1, 1: 0.1, 2: 0.1}, {0: "a", 1: "b", 2: "c"}),
    "dense": Outcomes({0: 0.1, 1: 0.1, 2: 0.1}, {0: "a", 1: "y", 2: "z"}),
    "old": Outcomes({0: 0.1, 1: 0.1}),
}


def test_rows_are_compared_within_a_partition_and_those_that_tell_none_with_all():
    assert comparable_sets(ROWS) == [
        [{"fedavg", "dense", "old"}],
        [{"fedavg", "old"}, {"dense", "old"}],
        [{"fedavg"}, {"dense"}],
    ]
    assert comparable_sets({"old": ROWS["old"]}) == [[{"old"}], [{"old"}]]


def test_rows_that_are_not_compared_are_named_with_the_seeds():
    (line,) = not_compared(ROWS)
    assert line == "Partitions differ in seeds 1, 2, where these are not compared with one another: fedavg; dense."
    with_third = ROWS | {"ot": Outcomes({0: 0.1, 1: 0.1}, {0: "a", 1: "b"})}
    assert not_compared(with_third) == [
        "Partitions differ in seed 1, where these are not compared with one another: fedavg, ot; dense.",
        "Partitions differ in seed 2, where these are not compared with one another: fedavg; dense.",
    ]
    assert not_compared({"fedavg": ROWS["fedavg"], "old": ROWS["old"]}) == []
