from oneshot_fl.reporting.summary import final_metrics, peak_memory_bytes


def test_final_metrics_are_named_by_phase():
    summary = {
        "synthetic": None,
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


def test_peak_memory_is_in_bytes():
    assert peak_memory_bytes() > 50 * 2**20
