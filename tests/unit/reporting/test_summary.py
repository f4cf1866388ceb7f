from dataclasses import replace
from types import SimpleNamespace

import pytest

from oneshot_fl.ledger import Cost
from oneshot_fl.parts.uploads import ClassifierUpload, Uploads
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.reporting.summary import _clients, final_metrics, privacy_metrics
from tests.parts import FixedLogits


def test_final_metrics_are_named_by_phase():
    summary = {
        "synthetic": None,
        "privacy": None,
        "clients": [{"accuracy": 0.1}, {"accuracy": None}],
        "ensemble": {"rows": {"uniform": 0.2}},
        "server": {
            "accuracy_last": 0.3,
            "accuracy_best": 0.4,
            "balanced_accuracy": 0.5,
            "macro_auroc": None,
            "ece": 0.6,
            "calibration": {"temperature": 1.5, "ece": 0.1},
            "by_class": [{"recall": 0.7}, {"recall": None}],
        },
    }
    assert final_metrics(summary) == {
        "evaluate/client_00": 0.1,
        "evaluate/ensemble_uniform": 0.2,
        "evaluate/server_last": 0.3,
        "evaluate/server_best": 0.4,
        "evaluate/server_balanced_accuracy": 0.5,
        "evaluate/server_ece": 0.6,
        "evaluate/server_temperature": 1.5,
        "evaluate/server_ece_calibrated": 0.1,
        "evaluate/recall_00": 0.7,
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


def _client(k, *, epsilon=None, poison=None, delta=0.001):
    upload = ClassifierUpload(FixedLogits([0.0, 0.0]), 3, f"key {k}", name=f"client {k}")
    trained = TrainedClient(upload, "classifier", "cnn2", 3, Cost(), 7, epsilon=epsilon)
    return SimpleNamespace(poison=poison, training=SimpleNamespace(delta=delta)), trained


def test_of_clients_it_is_told_what_they_spent_and_whose_samples_or_upload_an_attack_changed():
    """Of five: one private, one whose samples were poisoned, one whose upload was changed, one without."""
    plans, clients = zip(
        _client(0), _client(1, epsilon=0.0), _client(2, poison="flip"), _client(3), _client(4), strict=True
    )
    sent = [each.upload for each in clients[:4]]
    sent[3] = replace(sent[3], key="changed")
    nothing = SimpleNamespace(clients=[])
    result = SimpleNamespace(
        clients=clients,
        received=Uploads(tuple(sent)),
        given=SimpleNamespace(uploads=Uploads(())),
        evaluated=SimpleNamespace(accuracies=nothing, balanced=nothing),
    )
    found = _clients(SimpleNamespace(clients=plans), result)
    assert [client["hostile"] for client in found] == [False, False, True, True, True]
    assert [(client["epsilon"], client["delta"]) for client in found] == [
        (None, None),
        (0.0, 0.001),
        *[(None, None)] * 3,
    ]


def test_privacy_is_told_of_the_server_and_on_average_of_the_uploads():
    def attacked(value):
        return {"samples": 9, "loss": {"auc": value, "tpr": value / 2}, "lira": {"auc": value, "tpr": value / 4}}

    copied = {"images": 5, "nearer_to_training": 0.6, "copies": 0.2, "nearest_training": 0.1, "nearest_test": 0.1}
    found = privacy_metrics(
        {"server": attacked(0.5), "clients": [attacked(0.4), None, attacked(0.8)], "synthetic": {"images": copied}}
    )
    assert found == {
        "privacy/server_loss_auc": 0.5,
        "privacy/server_loss_tpr": 0.25,
        "privacy/server_lira_auc": 0.5,
        "privacy/server_lira_tpr": 0.125,
        "privacy/clients_loss_auc": pytest.approx(0.6),
        "privacy/clients_loss_tpr": pytest.approx(0.3),
        "privacy/clients_lira_auc": pytest.approx(0.6),
        "privacy/clients_lira_tpr": pytest.approx(0.15),
        "privacy/images_nearer_to_training": 0.6,
        "privacy/images_copies": 0.2,
    }
    assert privacy_metrics(None) == {}
