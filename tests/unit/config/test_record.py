"""What a run is said to be: its choices, and every setting that can tell it from another."""

import json
import shutil

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig

from oneshot_fl.config import from_overrides
from oneshot_fl.config.compose import config_dir, plain, reading_also
from oneshot_fl.config.record import NOT_COMPARED, SCHEMA, choices, compared, record, without
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config


def _record(*overrides: str) -> dict:
    cfg = compose_config(*overrides)
    return record(cfg, plain(cfg))


def test_settings_are_everything_but_what_changes_nothing():
    config = {
        "store": "/a",
        "hydra": {"run": 1},
        "data": {"name": "digits", "cache": "/b", "size": 8},
        "distill": {"images": 1000, "rounds": 3, "seed": 4},  # images as they usually are
        "clients": {"seed": 5, "of": {"lr": 1}, "epochs": 2},
        "seed": 5,
        "something_new": {"deep": {"seed": 6, "value": [1, 2]}},
    }
    assert compared(config, {**config, "clients": {**config["clients"], "seed": "${seed}"}}) == {
        "data": {"name": "digits", "size": 8},
        "distill": {"rounds": 3, "seed": 4},  # a seed of its own tells runs apart
        "clients": {"epochs": 2},
        "something_new": {"deep": {"seed": 6, "value": [1, 2]}},
    }


def test_only_the_whole_dotted_key_is_left_out():
    config = {"clients": {"store": 1, "cache": 2}, "data": {"evaluate": 3}}
    assert compared(config, config) == {
        "clients": {"store": 1, "cache": 2},
        "data": {"evaluate": 3},
    }


def test_a_seed_that_was_set_is_told_also_where_the_runs_own_equals_it():
    records = [_record("partition.seed=0", f"seed={seed}")["settings"] for seed in (0, 1)]
    assert records[0] == records[1]
    assert records[0]["partition"]["seed"] == 0
    assert "seed" not in records[0]["clients"]


def test_every_key_that_is_left_out_is_one_of_the_configuration():
    cfg = compose_config("data=mnist")
    elsewhere = {
        "hydra",
        "protocol",
        "experiment",
        "data.cache",
        "data.download",
    }  # where they are chosen, or Hydra alone
    for key in set(NOT_COMPARED) - elsewhere:
        node = cfg
        for name in key.split("."):
            assert name in node, key
            node = node[name]


@pytest.mark.parametrize(
    ("override", "differs"),
    [
        ("data=mnist", True),
        ("trainer.precision=bf16-mixed", True),
        ("clients.optimizer.lr=0.02", True),
        ("+data.anything=1", True),
        ("development=true", True),
        ("distill.images=1000", False),
        ("distill.images=2", True),
        ("attack=none", False),
        ("hearing=witnesses", True),
        ("logger=none", False),
        ("store=/elsewhere", False),
        ("evaluate=fidelity", False),
        ("evaluate.ensembles.entropy.sharpness=0", True),
        ("evaluate.batch_size=64", True),
        ("~evaluate.ensembles.uniform", False),
        ("+method/ensemble@evaluate.ensembles.evidence=evidence", False),
        ("clients.initial_weights=shared", False),
        ("clients.initial_weights=own", True),
        ("study=another", False),
        ("plots.format=svg", False),
    ],
)
def test_what_tells_two_runs_apart(override, differs):
    assert (_record()["settings"] != _record(override)["settings"]) is differs


def test_the_seed_stands_alone():
    first, second = _record(), _record("seed=1")
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first["settings"] == second["settings"]
    assert _record("distill.seed=7")["settings"] != first["settings"]


def test_a_record_names_choices_architectures_and_code_and_is_json():
    found = _record("method=dense", "model=mixed", "model.names=[cnn2,lenet5]", "server_model=cnn3", "study=mine")
    assert [found[key] for key in ("schema", "study", "method", "data", "seed")] == [
        SCHEMA,
        "mine",
        "dense",
        "digits",
        0,
    ]
    assert found["models"] == {"clients": ["cnn2", "lenet5", "cnn2", "lenet5", "cnn2"], "server": "cnn3"}
    assert set(found["settings"]["models"]) == {"cnn2", "lenet5", "cnn3"}
    assert set(found["code"]) == {"digest", "commit"}
    assert found["overrides"] == []  # outside of a job
    assert json.loads(json.dumps(found)) == found


def test_clients_are_told_apart_also_where_the_server_has_another_architecture_of_their_name():
    plain_clients, same = (
        _record("method=dense", f"model.norm={norm}", "server_model=cnn2")["settings"] for norm in ("false", "true")
    )
    assert {name: model["norm"] for name, model in plain_clients["models"].items()} == {
        "cnn2": False,
        "server:cnn2": True,
    }
    assert same == _record("method=dense")["settings"]  # as records always were


def test_what_was_changed_of_a_method_is_told():
    assert _record("method=dense")["changed"] == {}
    changed = _record("method=dense", "method.objective.bn.weight=0.5", "method/ensemble=stratified")["changed"]
    assert changed["objective.bn.weight"] == 0.5
    assert changed["ensemble._target_"].endswith("StratifiedAggregation")
    assert set(changed) >= {"objective.bn.weight", "ensemble._target_", "ensemble.scale"}


@pytest.mark.parametrize(
    ("overrides", "rounds", "usual"),
    [
        (["method=dense"], 25, 25),
        (["method=fedchorus"], 10, 25),
        (["method=fedchorus", "budget.rounds=3"], 3, 3),
        (["method=fedchorus", "distill.rounds=10"], 10, 10),  # the command says so for every method of it
        (["method=feddf", "budget=fedmho"], 38, 200),
        (["method=dense", "distill.rounds=${method.own}", "+method.own=7"], 7, None),
    ],
)
def test_rounds_that_a_method_takes_by_itself_are_told_from_the_budgets(overrides, rounds, usual):
    found = _record(*overrides)
    assert (found["settings"]["distill"]["rounds"], found["usual_rounds"]) == (rounds, usual)


def test_the_code_digest_follows_the_parts_that_the_run_names():
    first, other = _record("method=dense")["code"]["digest"], _record("method=ot")["code"]["digest"]
    assert first != other
    assert first == _record("method=dense", "distill.rounds=3")["code"]["digest"]


def test_choices_can_be_told_of_a_configuration_that_is_wrong():
    cfg = compose_config("method=dense")
    cfg.method = "dense"
    cfg.data = None
    found = choices(cfg)
    assert (found["method"], found["data"], found["seed"], found["schema"]) == (None, None, 0, SCHEMA)
    assert (found["settings"], found["models"]) == ({}, {"clients": [], "server": ""})


def test_settings_are_left_out_by_their_dotted_keys():
    config = {"store": "s", "data": {"cache": "s", "root": "r"}, "cache": "c"}
    assert without(config, {"store", "data.cache"}) == {"data": {"root": "r"}, "cache": "c"}


def test_what_was_changed_of_a_method_is_told_by_its_file_whatever_the_method_is_called(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("defaults: [dense, _self_]\nname: fedavg\n")
    with reading_also(tmp_path):
        told = from_overrides("trainer=cpu", "method=mine", "method.student.kl.weight=2")[0]().record
    assert (told["method"], told["changed"]) == ("fedavg", {"student.kl.weight": 2})
    assert from_overrides("trainer=cpu", "method=dense", "method.name=a")[0]().record["changed"] == {"name": "a"}


def test_a_run_tells_which_files_and_variables_its_command_read_in_place_of_ours(tmp_path, monkeypatch):
    shutil.copytree(config_dir(), tmp_path / "conf")
    (tmp_path / "conf" / "other.yaml").write_text("defaults: [config, _self_]\nseed: 7\n")
    with initialize_config_dir(str(tmp_path / "conf"), version_base="1.3"):
        around = ["+hydra.job.env_set.A=1", "hydra.job.chdir=true"]
        whole = compose("other", ["hydra.job.num=0", *around], return_hydra_config=True)
    monkeypatch.setattr(HydraConfig.instance(), "cfg", whole)
    told = choices(whole)
    files = [f"--config-path={tmp_path / 'conf'}", "--config-name=other"]
    assert (told["seed"], told["searched"]) == (7, [*files, *around])


def test_a_method_whose_file_is_half_edited_when_it_is_asked_what_was_changed_is_one_line(tmp_path):
    (tmp_path / "method").mkdir()
    file = tmp_path / "method" / "mine.yaml"
    file.write_text("defaults: [dense, _self_]\nname: mine\n")
    with reading_also(tmp_path):
        make = from_overrides("trainer=cpu", "method=mine")[0]
        file.write_text("defaults: [dense, _self_]\nname: [mine\n")
        with pytest.raises(OneshotError, match=rf"^{file}: line \d is no YAML"):
            make()
