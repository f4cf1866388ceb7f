from dataclasses import replace

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.chosen import FACTS, across, is_told, runs_with, value_of


@pytest.fixture
def runs(make_run):
    return [
        make_run(method=method, seed=seed, settings={"distill": {"rounds": rounds}, "partition": {"alpha": 0.5}})
        for method in ("dense", "fedhydra")
        for seed in (0, 1)
        for rounds in (8, 25)
    ]


@pytest.mark.parametrize(
    ("choices", "kept"),
    [
        ([], 8),
        (["distill.rounds=8"], 4),
        (["distill.rounds=8,25"], 8),
        (["distill.rounds=8", "method=dense", "seed=range(1,4)"], 1),
        (["partition=dirichlet 0.5", "model=cnn2", "data=mnist"], 8),
        (["partition.alpha=5e-1"], 8),
        (["partition.classes=null"], 8),
    ],
)
def test_runs_are_chosen_by_their_settings(runs, choices, kept, make_run):
    classes = make_run(settings={"partition": {"name": "classes_per_client", "alpha": None, "classes": 2}})
    chosen = runs_with([*runs, classes] if choices else runs, choices)
    assert len(chosen) == kept
    assert classes not in chosen


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        ("distill.rounds", "--where distill.rounds: is no KEY=VALUE like distill.rounds=25"),
        ("distil.rounds=8", "--where distil.rounds=8: no run has a setting distil.rounds, did you mean distill.rounds"),
        ("distill.rounds=9", "--where distill.rounds=9: no run has that; of distill.rounds there are 8, 25"),
    ],
)
def test_a_choice_that_leaves_nothing_is_told(runs, choice, line):
    with pytest.raises(OneshotError, match=line):
        runs_with(runs, [choice])


def test_a_run_whose_settings_nobody_knows_has_none_of_them(runs, make_run):
    unknown = make_run(None, status="failed")
    object.__setattr__(unknown, "settings", {})
    assert unknown in runs_with([*runs, unknown], [])
    assert unknown not in runs_with([*runs, unknown], ["data=mnist"])


def test_a_run_is_of_every_study_that_it_stands_for(make_run):
    both = replace(make_run(), studies=frozenset({"digits_dirichlet"}))
    assert runs_with([both, make_run(seed=1)], ["study=digits_dirichlet"]) == [both]
    assert len(runs_with([both, make_run(seed=1)], ["study=fedhydra"])) == 2
    with pytest.raises(OneshotError, match=r"of study there are fedhydra, digits_dirichlet$"):
        runs_with([both], ["study=digits"])


def test_every_word_is_a_value_of_a_run(make_run):
    assert {key: value_of(make_run(), key) for key in FACTS} == {
        "method": "fedhydra",
        "data": "mnist",
        "budget": "paper",
        "study": "fedhydra",
        "seed": 0,
        "model": "cnn2",
        "server_model": "cnn2",
        "partition": "dirichlet 0.1",
    }


def test_a_setting_is_told_beside_rounds_that_only_its_method_has(make_run):
    run = make_run(settings={"distill": {"rounds": 10, "batch_size": 64}}, usual_rounds=25)
    assert run.own["distill"] == {"rounds": 10}
    assert is_told(run, "distill.batch_size")
    assert is_told(run, "distill.rounds")
    assert not is_told(run, "distill.warmth")


def ran_on(make_run, method, accelerator, seed=0):
    trainer = {"accelerator": accelerator, "precision": "32-true"}
    return make_run(method=method, seed=seed, settings={"trainer": trainer, "gate": None})


def test_runs_are_compared_across_a_setting_that_is_asked_for(make_run, capsys):
    runs = [ran_on(make_run, "fedavg", "cpu"), ran_on(make_run, "dense", "cuda")]
    first, second = across(runs, ["trainer.accelerator"])
    assert runs[0].protocol != runs[1].protocol
    assert first.protocol == second.protocol
    assert first.setting("trainer.precision") == "32-true"
    assert runs[0].setting("trainer.accelerator") == "cpu"
    assert capsys.readouterr().err == ""


def test_of_runs_that_only_such_a_setting_told_apart_the_newer_counts_and_that_is_said(make_run, capsys):
    runs = [ran_on(make_run, "fedavg", where, seed) for where, seed in (("cpu", 0), ("cuda", 0), ("cuda", 1))]
    assert len(across(runs, ["trainer.accelerator"])) == len(runs)
    told = "1 runs differ from another only in trainer.accelerator; of these the newer counts"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("seed", "--across seed: says what is compared; must be a setting, like trainer.accelerator"),
        ("trainer.acelerator", "--across trainer.acelerator: no run has a setting trainer.acelerator, did you mean"),
    ],
)
def test_what_cannot_be_compared_across_is_told(make_run, key, line):
    with pytest.raises(OneshotError, match=line):
        across([ran_on(make_run, "fedavg", "cpu")], [key])


def test_a_key_below_something_that_is_no_group_leaves_a_run_as_it_is(make_run):
    flat, nested = make_run(settings={"gate": None}), make_run(settings={"gate": {"worst": 0.5}})
    assert across([flat, nested], ["gate.worst"])[0].settings == flat.settings
