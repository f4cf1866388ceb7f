import pytest
from omegaconf import OmegaConf

from oneshot_fl.reporting.record import facts
from oneshot_fl.reporting.summary import final_metrics, peak_memory_bytes, protocol
from tests.conftest import compose_config


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("seed=1", True),
        ("method=dense", True),
        ("method.objective.adv.weight=0", True),
        ("store=elsewhere", True),
        ("logger=none", True),
        ("proxy.samples=7", True),
        ("distill.images=7", True),
        ("evaluate=fidelity", True),
        ("evaluate.batch_size=7", False),
        ("proxy=holdout", False),
        ("partition.alpha=0.1", False),
        ("partition=iid", False),
        ("clients.epochs=1", False),
        ("distill.rounds=1", False),
        ("generator.width=8", False),
        ("model=lenet5", False),
        ("server_model=lenet5", False),
    ],
)
def test_a_protocol_is_all_but_method_seed_and_places(override, same):
    assert (protocol(compose_config(), "data") == protocol(compose_config(override), "data")) is same


def test_a_protocol_does_not_ask_how_an_architecture_was_chosen():
    chosen = [["model=cnn2"], ["model=fedhydra"], ["model=fedhydra", "+model.of.emnist=cnn3"], ["server_model=cnn2"]]
    assert len({protocol(compose_config("data=mnist", *overrides), "data") for overrides in chosen}) == 1


def test_other_data_are_another_protocol():
    assert protocol(compose_config(), "data") != protocol(compose_config(), "other data")


def test_settings_of_what_is_told_came_later_and_left_protocols_and_records_as_they_were():
    cfg = compose_config("evaluate=fidelity")
    before = compose_config()
    OmegaConf.set_struct(before, False)
    del before.distill.images, before.evaluate.fidelity
    assert protocol(cfg, "data") == protocol(before, "data")
    assert facts(cfg)["settings"] == facts(before)["settings"]


def test_final_metrics_are_named_by_phase():
    summary = {
        "synthetic": None,
        "clients": [{"accuracy": 0.1}],
        "ensemble": {"rows": {"uniform": 0.2}},
        "server": {"accuracy_last": 0.3, "accuracy_best": 0.4},
    }
    assert final_metrics(summary) == {
        "evaluate/client_00": 0.1,
        "evaluate/ensemble_uniform": 0.2,
        "evaluate/server_last": 0.3,
        "evaluate/server_best": 0.4,
    }
    bounds = {"noise": {"fid": 9.0, "kid": 0.9}, "real": {"fid": 1.0, "kid": 0.1}}
    more = final_metrics(summary | {"synthetic": {"fid": 5.0, "kid": 0.5, "kid_std": 0.0, "samples": 4, **bounds}})
    assert {name: more[name] for name in more.keys() - final_metrics(summary).keys()} == {
        "evaluate/synthetic_fid": 5.0,
        "evaluate/synthetic_kid": 0.5,
        "evaluate/noise_fid": 9.0,
        "evaluate/noise_kid": 0.9,
        "evaluate/real_fid": 1.0,
        "evaluate/real_kid": 0.1,
    }


def test_peak_memory_is_in_bytes():
    assert peak_memory_bytes() > 50 * 2**20
