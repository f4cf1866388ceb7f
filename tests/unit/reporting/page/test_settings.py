import pytest

from oneshot_fl.reporting.page.settings import cells_of, differences_of, gaps_of, labels_of, left_out, settings_of
from oneshot_fl.reporting.tables.measures import measure_of

LAST = measure_of("accuracy", which="last")


def test_a_setting_for_each_group_of_comparable_runs_by_data_and_partition(make_run):
    runs = [
        make_run(data="svhn"),
        make_run(settings={"partition": {"alpha": 0.5}}),
        make_run(method="fedavg", seed=1),
        make_run(method="dense"),
    ]
    settings = settings_of(runs)
    assert [each.name for each in settings] == ["mnist, dirichlet 0.1", "mnist, dirichlet 0.5", "svhn, dirichlet 0.1"]
    assert list(settings[0].rows) == ["fedavg", "dense"]
    assert labels_of(settings) == ["fedavg", "dense", "fedhydra"]


def test_settings_that_differ_in_little_say_in_what_and_those_that_differ_in_much_are_numbered(make_run):
    little = settings_of([make_run(), make_run(settings={"clients": {"epochs": 7}})])
    assert little[1].name == "mnist, dirichlet 0.1; clients.epochs=7"
    much = {"epochs": 7, "batch_size": 7, "augmentation": "a" * 60}
    assert [each.name for each in settings_of([make_run(), make_run(settings={"clients": much})])] == [
        "mnist, dirichlet 0.1, protocol 1",
        "mnist, dirichlet 0.1, protocol 2",
    ]


def test_a_number_stands_for_the_settings_that_are_not_null_of_those_that_differ(make_run):
    slow = {"patience": 8, "least_improvement": 0.001, "best_of_so_many": 10}
    runs = [make_run(settings={"clients": each}) for each in (slow, slow | {"patience": 2}, {})]
    settings = settings_of([*runs, make_run(data="svhn")])
    assert [each.apart for each in settings] == [
        "clients.patience=8, clients.least_improvement=0.001, clients.best_of_so_many=10",
        "clients.patience=2, clients.least_improvement=0.001, clients.best_of_so_many=10",
        "nothing that the others set",
        "",
    ]


def test_a_condition_is_part_of_the_name_also_where_all_share_it(make_run):
    attacked = {"attack": {"name": "scale", "factor": 10.0}}
    (setting,) = settings_of([make_run(settings=attacked), make_run(settings=attacked, seed=1)])
    assert setting.name == "mnist, dirichlet 0.1, attack scale"
    assert "attack scale" in setting.title


def test_a_name_that_says_what_differs_stands_for_nothing_more(make_run):
    settings = settings_of([make_run(), make_run(settings={"clients": {"epochs": 7}})])
    assert [each.apart for each in settings] == ["", ""]


def test_a_cell_tells_mean_spread_and_what_is_missing_in_percent(make_run):
    (setting,) = settings_of(
        [make_run(0.5), make_run(0.7, seed=1), make_run(None, seed=2), make_run(None, method="ot")]
    )
    ot, fedhydra = cells_of(setting, LAST)
    assert ot == {"s": 0, "m": "ot", "n": 0, "missing": 1}
    assert fedhydra == {"s": 0, "m": "fedhydra", "n": 2, "mean": 60.0, "std": 14.142, "missing": 1}


def test_differences_go_both_ways_over_shared_seeds_only(make_run):
    (setting,) = settings_of([make_run(0.5), make_run(0.9, seed=1), make_run(0.3, method="fedavg")])
    found = {(entry["m"], entry["base"]): (entry["mean"], entry["n"]) for entry in differences_of(setting, LAST)}
    assert found == {("fedavg", "fedhydra"): (-20.0, 1), ("fedhydra", "fedavg"): (20.0, 1)}


def test_rows_on_other_partitions_are_not_paired_and_a_line_says_so(make_run):
    runs = [
        make_run(0.5),
        make_run(0.9, seed=1),
        make_run(0.3, method="fedavg"),
        make_run(0.8, method="fedavg", seed=1),
    ]
    for run, digest in zip(runs, "abac", strict=True):
        run.summary["partition"] = {"sha256": digest}
    settings = settings_of(runs)
    found = {(entry["m"], entry["base"]): (entry["mean"], entry["n"]) for entry in differences_of(settings[0], LAST)}
    assert found == {("fedavg", "fedhydra"): (-20.0, 1), ("fedhydra", "fedavg"): (20.0, 1)}
    assert left_out(settings, LAST) == [
        "mnist, dirichlet 0.1: Partitions differ in seed 1, where these are not compared with one another: fedavg; "
        "fedhydra."
    ]


def test_the_gap_is_to_the_ensemble_that_is_best_over_all_seeds(make_run):
    # "b" is best for one seed, "a" in the mean: a best one for every seed would flatter the ensembles
    runs = [make_run(0.5, rows={"a": 0.6, "b": 0.7}), make_run(0.5, seed=1, rows={"a": 0.9, "b": 0.1})]
    (setting,) = settings_of(runs)
    (gap,) = gaps_of(setting, LAST)
    assert (gap["ensemble"], gap["mean"], gap["server"], gap["level"]) == ("a", pytest.approx(25), 50, 75)


def test_there_is_no_gap_where_no_run_is_done(make_run):
    (setting,) = settings_of([make_run(None)])
    assert gaps_of(setting, LAST) == []
