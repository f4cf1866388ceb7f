from pathlib import Path

import pytest
import torch

from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import choices, plain
from oneshot_fl.config.record import record
from oneshot_fl.reporting.about import about, comparison, protocol
from tests.composing import clients_of, compose_config


def _about(*overrides, of=""):
    return about(experiment_of(compose_config(*overrides)), Path("run"), of=of)


def test_a_run_is_named_by_its_choices_and_how_uneven_the_partition_is():
    found = _about("method=dense", "partition.alpha=0.05", "seed=3", "study=mine")
    assert found.name == "dense-digits-dirichlet0.05-cnn2-seed3"
    assert (found.group, found.phases) == ("mine", "clients+distill")
    assert found.tags[:3] == ("dense", "digits", "dirichlet0.05")
    assert found.config["seed"] == 3


@pytest.mark.parametrize(
    ("method", "phases"),
    [("fedavg", "clients+average"), ("fedhydra", "clients+stratify+distill"), ("fedchorus", "clients+recite+distill")],
)
def test_the_phases_are_those_that_the_method_goes_through(method, phases):
    assert _about(f"method={method}").phases == phases


def test_the_same_run_begun_again_is_the_same_and_another_is_not():
    once = _about("method=dense").id
    assert _about("method=dense", "logger=wandb", "store=/elsewhere").id == once
    assert _about("method=dense", "workers=2", "trainer.jobs_per_gpu=2").id == once
    others = [_about(*each).id for each in (["method=dense", "seed=1"], ["method=dense", "study=s"], ["method=feddf"])]
    assert len({once, *others}) == 4


def test_a_run_on_folders_of_images_is_the_same_with_another_store(tmp_path):
    (tmp_path / "train").mkdir()
    folders = ("method=dense", "data=image_folder", f"data.root={tmp_path}")
    once = _about(*folders, "store='~/store'")
    assert _about(*folders, f"store={tmp_path}").id == once.id
    assert _about(*folders, f"data.cache={tmp_path}").id == once.id
    assert _about(*folders, "data.size=16").id != once.id


def test_runs_of_other_uploads_or_on_another_device_are_others(monkeypatch):
    once = _about(of="uploads").id
    assert _about(of="uploads").id == once
    other = _about(of="other uploads").id
    monkeypatch.setattr("oneshot_fl.reporting.about.device_of", lambda _: torch.device("cuda"))
    assert len({once, other, _about(of="uploads").id}) == 3


def _protocol(*overrides):
    return protocol(experiment_of(compose_config(*overrides)).record)


def test_runs_that_may_be_compared_share_their_protocol():
    assert _protocol("method=dense") == _protocol("method=fedhydra", "seed=4")
    assert _protocol("method=dense") == _protocol("method=feddf", "proxy.samples=70")
    assert _protocol("method=dense") == _protocol("method=fedchorus", "recite.steps=3", "stratify.steps=3")
    assert _protocol("method=dense") != _protocol("method=dense", "partition.alpha=0.3")


def test_all_methods_on_clients_alike_may_be_compared_as_they_are():
    found: dict[tuple[str, ...], set[str]] = {}
    for method in (methods := choices("method")):
        cfg = compose_config(f"method={method}", *clients_of(method))
        found.setdefault(clients_of(method), set()).add(protocol(record(cfg, plain(cfg))))
    assert len(methods) > 15
    assert [len(protocols) for protocols in found.values()] == [1, 1]  # of classifiers, and of some with a VAE


@pytest.mark.parametrize(("method", "own"), [("fedchorus", "recite.steps=3"), ("fedhydra", "stratify.steps=3")])
def test_runs_of_one_row_differ_in_their_seed_alone(method, own):
    plans = [experiment_of(compose_config(f"method={method}", *more)) for more in ([], ["seed=4"], [own])]
    first, other_seed, changed = (comparison(plan.record, of="") for plan in plans)
    assert first == other_seed
    assert {key for key in first if first[key] != changed[key]} == {"row"}


def test_a_method_of_the_same_name_is_another_row_where_anything_of_it_differs():
    schedules = ("constant", "one_cycle")
    plans = [experiment_of(compose_config("method=dense", f"+method.student_schedule={each}")) for each in schedules]
    nameless = [{**plan.record, "changed": {}} for plan in plans]  # as a file of a user's own, which changes nothing
    constant, one_cycle = (comparison(each, of="") for each in nameless)
    assert constant["protocol"] == one_cycle["protocol"]
    assert constant["row"] != one_cycle["row"]


def test_runs_whose_clients_have_lent_images_to_the_server_may_not_be_compared_with_others():
    lent = [(), ("proxy=holdout",), ("proxy=holdout", "proxy.fraction=0.5")]
    assert len({_protocol("method=fedavg", *each) for each in lent}) == 3
    assert _protocol("method=fedavg", "proxy=holdout") == _protocol("method=feddf", "proxy=holdout")


def test_runs_whose_clients_were_heard_may_be_compared_where_they_recited_alike():
    heard = [
        ("distill.rounds=5", *more) for more in [(), ("hearing=witnesses",), ("hearing=witnesses", "recite.steps=3")]
    ]
    assert len({_protocol("method=dense", *each) for each in heard}) == 3
    assert _protocol("method=dense", *heard[2]) == _protocol("method=fedchorus", *heard[2])


def test_aggregations_of_other_uploads_may_not_be_compared():
    assert _about(of="uploads").tags[-1] != _about(of="other uploads").tags[-1] == _about(of="other uploads").tags[-1]


def test_a_protocol_is_the_same_however_its_numbers_are_written():
    assert _protocol("partition.alpha=1") == _protocol("partition.alpha=1.0")
