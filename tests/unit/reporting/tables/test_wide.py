from dataclasses import replace

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.measures import measure_of
from oneshot_fl.reporting.tables.wide import wide_sheets

LAST = measure_of("accuracy", which="last")
REACHED = {
    0.1: {"fedhydra": (0.5, 0.7), "fedavg": (0.3, 0.4), "dense": (0.6, 0.6)},
    0.5: {"fedhydra": (0.8, 0.9), "fedavg": (0.7, 0.8)},
}
"""By alpha and method, of seeds 0 and 1: means are 60, 35, 60 and 85, 75; spreads are the difference over sqrt(2)."""


@pytest.fixture
def runs(make_runs):
    return make_runs(REACHED)


def _sheet(runs, measure=LAST, wanted=()):
    (sheet,) = wide_sheets(runs, measure, wanted)
    return sheet


def _best(sheet):
    return sorted((sheet.rows[line][0], sheet.header[place]) for line, place in sheet.best)


def test_a_row_a_method_and_a_column_a_setting(runs):
    sheet = _sheet(runs)
    assert sheet.header == ["", "alpha=0.1", "alpha=0.5"]
    assert sheet.rows == [
        ["fedavg", "35.00 ± 7.07", "75.00 ± 7.07"],
        ["dense", "60.00 ± 0.00", "–"],
        ["fedhydra", "60.00 ± 14.14", "85.00 ± 7.07"],
    ]
    assert sheet.title == (
        "Test accuracy in percent, server, last round: mnist, dirichlet, 5 clients, cnn2, budget paper, "
        "200 local epochs, 200 rounds of 30 generator steps"
    )
    assert sheet.notes == ["Mean ± standard deviation over 2 seeds (0, 1)."]


def test_the_best_mean_of_a_column_and_all_that_are_printed_like_it(runs, make_run):
    assert _best(_sheet(runs)) == [("dense", "alpha=0.1"), ("fedhydra", "alpha=0.1"), ("fedhydra", "alpha=0.5")]
    near = [make_run(0.60004, method="dense"), make_run(0.60001), make_run(0.6002, method="fedavg")]
    assert _best(_sheet(near)) == [("fedavg", LAST.header)]
    assert {row for row, _ in _best(_sheet(near[:2]))} == {"dense", "fedhydra"}


def test_nothing_is_best_where_it_is_alone(runs):
    assert _best(_sheet(runs, wanted=["dense", "fedhydra"])) == [("dense", "alpha=0.1"), ("fedhydra", "alpha=0.1")]


def test_the_least_is_best_of_an_error(runs):
    for run in runs:
        run.summary["server"]["ece"] = run.summary["server"]["accuracy_last"]
    sheet = _sheet(runs, measure_of("ece", which="last"))
    assert _best(sheet) == [("fedavg", "alpha=0.1"), ("fedavg", "alpha=0.5")]
    assert sheet.title.startswith("Expected calibration error in percent (0 is best), server, last round: mnist")


def test_another_figure_or_round_takes_the_place_of_accuracy(runs):
    best = _sheet(runs, measure_of("accuracy", which="best"))
    assert best.rows[0][1] == "45.00 ± 7.07"  # 0.1 above the last round
    runs[0].summary["server"]["balanced_accuracy"] = 0.25
    balanced = _sheet(runs, measure_of("balanced_accuracy", which="last"))
    assert balanced.rows == [["fedavg", "–", "–"], ["dense", "–", "–"], ["fedhydra", "25.00", "–"]]
    assert "9 finished runs do not tell it; run them again." in balanced.notes


def test_rows_by_name_in_their_order_with_ensembles_and_clients(runs):
    sheet = _sheet(runs, wanted=["clients, mean", "fedhydra", "ensemble: uniform", "fedavg", "fedhydra"])
    assert [row[0] for row in sheet.rows] == ["clients, mean", "fedhydra", "ensemble: uniform", "fedavg"]
    assert sheet.rows[0][1:] == ["30.00 ± 0.00", "30.00 ± 0.00"]
    assert sheet.rows[2][1:] == ["50.00 ± 0.00", "50.00 ± 0.00"]


def test_a_method_stands_for_all_of_its_rows(make_run):
    changes = [{"ensemble.scale": scale} for scale in (10, 20)]
    runs = [make_run(changed=change, settings={"method": {"mine": n}}) for n, change in enumerate(changes)]
    sheet = _sheet([*runs, make_run(method="fedavg")], wanted=["fedhydra"])
    assert [row[0] for row in sheet.rows] == ["fedhydra (ensemble.scale=10)", "fedhydra (ensemble.scale=20)"]


def test_a_row_that_is_none_is_named_with_the_nearest(runs):
    with pytest.raises(
        OneshotError,
        match=r"^--row ensemble: unifrom: is no row of these runs, did you mean ensemble: uniform\?; choose from "
        r"fedavg, dense, fedhydra, ensemble: uniform, clients, mean$",
    ):
        _sheet(runs, wanted=["ensemble: unifrom"])


def test_cells_of_other_seeds_are_named(runs, make_run):
    """Seed 1 of FedHydra at 0.5 is missing; a third setting has seed 4 alone."""
    kept = [run for run in runs if (run.method, run.spread, run.seed) != ("fedhydra", "0.5", 1)]
    other = [
        make_run(method=method, seed=4, settings={"partition": {"alpha": 1.0}}) for method in ("fedavg", "fedhydra")
    ]
    assert _sheet([*kept, *other]).notes == [
        "Mean ± standard deviation over 2 seeds (0, 1) where nothing else is said.",
        "Over 1 seed (0): fedhydra in alpha=0.5.",
        "Over 1 seed (4): all in alpha=1.",
    ]


def test_a_run_that_failed_is_no_value_and_says_why(runs, make_run):
    failed = make_run(None, method="ot", error="no memory", settings={"partition": {"alpha": 0.1}})
    sheet = _sheet([*runs, failed])
    assert ["ot", "–", "–"] in sheet.rows
    assert sheet.notes[1:] == ["Failed: no memory."]
    assert _sheet([failed]).rows == [["ot", "–"]]


def test_settings_whose_rows_may_not_be_compared_are_named(runs):
    for run in runs:
        other = (run.method, run.spread, run.seed) == ("fedhydra", "0.5", 1)
        run.summary["partition"] = {"sha256": "other" if other else f"{run.spread}, {run.seed}"}
        run.summary["code"] = {"digest": "b" if other else "a"}
    assert _sheet(runs).notes[1:] == [
        "alpha=0.5: Partitions differ in seed 1, where these are not compared with one another: fedhydra; fedavg.",
        "alpha=0.5: fedhydra: run by code that differs: a, b.",
    ]
    assert _sheet(runs, wanted=["fedavg", "dense"]).notes[1:] == []  # of rows that are not shown nothing is said


def test_a_row_with_other_settings_of_its_own_in_another_setting_is_named(runs):
    runs = [
        replace(run, settings=run.settings | {"stratify": {"steps": 5 if run.spread == "0.1" else 60}}) for run in runs
    ]
    assert _sheet(runs).notes[1:] == [
        "fedhydra is not the same everywhere: stratify.steps=5; stratify.steps=60.",
    ]


def test_for_machines_every_cell_has_its_setting_in_fractions(runs):
    records = {(record["row"], record["setting"]): record for record in _sheet(runs).records}
    assert len(records) == 6
    assert records["fedavg", "alpha=0.5"] == {
        "metric": "accuracy_last",
        "row": "fedavg",
        "setting": "alpha=0.5",
        "n": 2,
        "seeds": "0 1",
        "mean": pytest.approx(0.75),
        "std": pytest.approx(0.0707, abs=1e-4),
    }
    assert (records["dense", "alpha=0.5"]["n"], records["dense", "alpha=0.5"]["mean"]) == (0, None)


def test_without_a_run_there_is_no_table():
    assert wide_sheets([], LAST) == []
