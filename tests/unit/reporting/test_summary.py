import pytest

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


def test_final_metrics_are_named_by_phase():
    summary = {
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


def test_peak_memory_is_in_bytes():
    assert peak_memory_bytes() > 50 * 2**20
