import json
from enum import Enum

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.sweeps.manifest import Manifest
from oneshot_fl.sweeps.search import (
    best_of,
    check_direction,
    check_objective,
    closing_lines,
    searches,
    told,
    value_of,
)

GRID = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
OPTUNA = "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper"
ALL = range(9)
"""Jobs that the command ran itself."""


def _summary(disagreement, divergence=0.1, accuracy=0.9):
    validation = {"of": "synthetic", "images": 50, "disagreement": disagreement, "divergence": divergence}
    return {"validation": validation, "server": {"accuracy_last": accuracy}}


def _sweep(folder, summaries):
    jobs = {number: (f"distill.student_optimizer.lr={number}", "seed=0") for number in range(len(summaries))}
    Manifest(jobs, sweeper="OptunaSweeper").write(folder)
    for number, summary in enumerate(summaries):
        place = folder / str(number)
        place.mkdir(parents=True)
        (place / "run.json").write_text(json.dumps({"job": number, "status": "done" if summary else "failed"}))
        if summary:
            (place / "summary.json").write_text(json.dumps(summary))


def test_a_sweep_ends_with_what_it_did_and_its_best(tmp_path):
    _sweep(tmp_path, [_summary(0.3), None, _summary(0.2)])
    done, best = closing_lines(tmp_path, ALL)
    assert done.startswith(f"2 done in {tmp_path}, 1 failed: ")
    assert best.startswith("best of 2 trials by 20.00% disagreement")


def test_trials_of_the_same_settings_are_one(tmp_path):
    _sweep(tmp_path, [_summary(0.3), _summary(0.2)])
    Manifest(dict.fromkeys(range(2), ("seed=0",)), sweeper="OptunaSweeper").write(tmp_path)
    assert best_of(tmp_path, ALL).startswith("all trials are the same (seed=0): search a setting, as KEY=interval(a,b)")
    assert json.loads((tmp_path / "best.json").read_text())["trials"] == 1


def test_trials_that_all_give_the_very_same_have_no_best(tmp_path):
    _sweep(tmp_path, [_summary(0.3), None, _summary(0.3)])
    assert best_of(tmp_path, ALL).startswith(
        "all 2 trials gave the very same, 30.00% disagreement on 50 synthetic images: what is searched ("
    )
    _sweep(tmp_path / "one", [_summary(0.3), None])
    assert best_of(tmp_path / "one", ALL).startswith("best of 1 trial by 30.00%")


def test_of_two_trials_of_the_same_settings_the_one_that_is_done_counts(tmp_path):
    _sweep(tmp_path, [None, _summary(0.2), _summary(0.3)])
    Manifest({0: ("seed=0",), 1: ("seed=0",), 2: ("seed=1",)}, sweeper="OptunaSweeper").write(tmp_path)
    assert best_of(tmp_path, ALL).startswith("best of 2 trials by 20.00% disagreement")


@pytest.mark.parametrize(
    ("done", "others", "best"),
    [
        ([], {"code": {"digest": "now"}}, "best of 2 trials by 20.00%"),
        ([0], {"code": {"digest": "now"}}, "best of 2 trials by 20.00%"),
        ([0], {"code": {"digest": "before"}}, "best of 1 trial by 30.00%"),
        ([0], {"code": {"digest": "now"}, "data_sha256": "other"}, "best of 1 trial by 30.00%"),
        ([0, 1], {"code": {"digest": "elsewhere"}}, "best of 2 trials by 20.00%"),
        ([], {}, "best of 1 trial by 30.00%"),
    ],
    ids=["none yet", "the same", "other code", "other data", "run now", "by an earlier version"],
)
def test_of_trials_of_an_earlier_command_those_of_the_same_code_and_data_count(
    tmp_path, monkeypatch, done, others, best
):
    monkeypatch.setattr("oneshot_fl.sweeps.search.code_of", lambda *_: "now")
    _sweep(tmp_path, [{**_summary(0.3), "code": {"digest": "now"}}, {**_summary(0.2), **others}])
    for number in range(2):
        (tmp_path / str(number) / "config.yaml").write_text("{}")
    line = best_of(tmp_path, done)
    assert line.startswith(best)
    assert line.endswith("; 1 of other code or data do not count") == best.startswith("best of 1")


def test_a_search_of_which_no_trial_counts_any_more_says_so(tmp_path):
    _sweep(tmp_path, [_summary(0.3), _summary(0.2)])  # without the configuration that would tell their code
    (tmp_path / "best.json").write_text("{}")
    assert best_of(tmp_path, []) == "no trial counts: 2 of other code or data; the same command runs them again"
    assert not (tmp_path / "best.json").exists()


def test_what_cannot_be_read_any_more_does_not_change_how_a_sweep_ends(tmp_path):
    _sweep(tmp_path, [_summary(0.3), _summary(0.2)])
    (tmp_path / "0" / "summary.json").unlink()
    (line,) = closing_lines(tmp_path, ALL)
    assert line.startswith(f"{tmp_path}: cannot tell what came of the sweep (")
    (tmp_path / "sweep.json").write_text("{}")
    assert closing_lines(tmp_path, ALL) == []  # the launcher has said so


def test_a_grid_is_no_search_and_gives_accuracies():
    assert not searches(GRID)
    assert value_of(_summary(0.25), GRID) == 0.9
    assert told(0.9, GRID) == "server accuracy 90.00%"
    check_objective(GRID, {"evaluate": {"validation": None}})


def test_a_search_is_told_what_is_to_be_small_and_never_the_test_accuracy():
    assert searches(OPTUNA)
    assert value_of(_summary(0.25), OPTUNA) == 0.25
    assert told(0.25, OPTUNA) == "validation disagreement 25.00%"


@pytest.mark.parametrize("config", [{"evaluate": {"validation": None}}, {"evaluate": None}])
def test_a_search_without_validation_is_refused(config):
    with pytest.raises(OneshotError, match=r"must not choose by test images; set evaluate.validation=synthetic"):
        check_objective(OPTUNA, config)
    check_objective(OPTUNA, {"evaluate": {"validation": "proxy"}})


class Direction(Enum):
    """As the plugin's is."""

    minimize = 1
    maximize = 2


@pytest.mark.parametrize("direction", ["maximize", Direction.maximize, ["minimize", "maximize"], ["minimize"]])
def test_a_search_for_the_worst_or_for_several_values_is_refused(direction):
    with pytest.raises(OneshotError, match=r"^hydra\.sweeper\.direction=.*: must be minimize; "):
        check_direction(OPTUNA, direction)
    check_direction(GRID, direction)


@pytest.mark.parametrize("direction", ["minimize", Direction.minimize, None])
def test_a_search_for_the_best_is_not(direction):
    check_direction(OPTUNA, direction)


@pytest.mark.parametrize(
    ("accuracies", "line"),
    [([None, None], "^evaluate.validation: there is no ensemble"), ([None, 0.8], "^distill.held_out: .*set a larger")],
    ids=["only decoders", "no image held out"],
)
def test_a_search_where_nothing_can_be_compared_is_refused(accuracies, line):
    with pytest.raises(OneshotError, match=line):
        value_of({"validation": None, "clients": [{"accuracy": each} for each in accuracies]}, OPTUNA)


def test_the_best_is_told_with_the_number_of_trials_and_is_not_the_best_on_the_test_set(tmp_path):
    _sweep(tmp_path, [_summary(0.2, accuracy=0.99), None, _summary(0.1, 0.5), _summary(0.1, 0.3, accuracy=0.8)])
    line = best_of(tmp_path, ALL)
    assert line.startswith(
        "best of 3 trials by 10.00% disagreement on 50 synthetic images: distill.student_optimizer.lr=3"
    )
    assert "80.00%" in line
    best = json.loads((tmp_path / "best.json").read_text())
    assert (best["trials"], best["done"], best["job"], best["test_accuracy"]) == (4, 3, 3, 0.8)


def test_a_search_in_which_nothing_was_done_has_no_best(tmp_path):
    _sweep(tmp_path, [None, None])
    (tmp_path / "best.json").write_text("{}")  # of the search before it
    assert best_of(tmp_path, ALL) is None
    assert not (tmp_path / "best.json").exists()
