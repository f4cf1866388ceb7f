import json
import os

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables import mean_and_spread, read_summaries, tables


def _summary(**changes) -> dict:
    return {
        "method": "fedhydra",
        "variant": "v1",
        "data": "digits",
        "budget": "demo",
        "protocol": "p1",
        "seed": 0,
        "partition": {"name": "dirichlet", "settings": {"alpha": 0.1}},
        "clients": [{"model": "cnn2", "accuracy": 0.2}, {"model": "lenet5", "accuracy": 0.4}],
        "ensemble": {"rows": {"uniform": 0.5}},
        "server": {"accuracy_last": 0.6, "accuracy_best": 0.7},
    } | changes


def test_mean_and_sample_standard_deviation_in_percent():
    # mean of 10, 20, 30 is 20; sample variance (100 + 0 + 100) / 2 = 100
    assert mean_and_spread([0.1, 0.2, 0.3]) == "20.00 ± 10.00"
    assert mean_and_spread([0.1]) == "10.00"


def test_a_row_a_method_and_reference_rows_counted_once_a_seed():
    text = tables(
        [
            _summary(),
            _summary(seed=1),
            _summary(method="dense", variant="v2", server={"accuracy_last": 0.1, "accuracy_best": 0.1}),
        ]
    )
    assert "digits, dirichlet(alpha=0.1), cnn2+lenet5, budget demo" in text
    assert "| fedhydra | 0, 1 | 60.00 ± 0.00 | 70.00 ± 0.00 |" in text
    assert "| dense | 0 | 10.00 | 10.00 |" in text
    assert "| ensemble: uniform | 0, 1 | 50.00 ± 0.00 |  |" in text
    assert "| clients, mean | 0, 1 | 30.00 ± 0.00 |  |" in text


def test_protocols_are_never_mixed_and_variants_keep_their_own_row():
    text = tables([_summary(), _summary(variant="v2"), _summary(protocol="p2")])
    assert text.count("| --- |") == 2
    assert "| fedhydra [v1] | 0 |" in text
    assert "| fedhydra [v2] | 0 |" in text


def test_the_newest_run_of_a_seed_counts(tmp_path):
    for age, accuracy in ((100, 0.1), (0, 0.9)):
        path = tmp_path / str(age) / "summary.json"
        path.parent.mkdir()
        path.write_text(json.dumps(_summary(server={"accuracy_last": accuracy, "accuracy_best": accuracy})))
        stamp = path.stat().st_mtime - age
        os.utime(path, (stamp, stamp))
    assert "| fedhydra | 0 | 90.00 | 90.00 |" in tables(read_summaries([tmp_path]))


def test_a_folder_without_runs_is_named(tmp_path):
    with pytest.raises(OneshotError, match=r"no summary\.json"):
        read_summaries([tmp_path])
