"""A whole run in Weights & Biases, offline, read back from its log."""

import oneshot_fl
from tests.composing import TINY
from tests.wandb_promised import HISTORY, SUMMARY
from tests.wandb_records import read_back


def test_an_offline_run_holds_every_promised_key(tmp_path):
    offline = ("logger=wandb", "logger.wandb.mode=offline", "study=promised")
    run = tmp_path / "run"
    summary = oneshot_fl.run(*TINY, "method=fedhydra", *offline, f"store={tmp_path / 'store'}", folder=run).summary
    found = read_back(run)
    shown = {key for row in found.history for key in row}
    assert shown >= HISTORY
    assert found.summary.keys() >= SUMMARY
    assert found.run["display_name"].startswith("fedhydra-digits-dirichlet0")
    assert (found.run["run_group"], found.run["job_type"]) == ("promised", "clients+stratify+distill")
    assert found.config["method"]["name"] == "fedhydra"
    assert [row["distill/accuracy"] for row in found.history if "distill/accuracy" in row] == [
        row["accuracy"] for row in summary["rounds"]
    ]
    assert [row["distill/step"] for row in found.history if "distill/images" in row] == [1, 2, 3]
    assert found.summary["cost/clients/macs"] == summary["cost"]["clients"]["macs"] > 0
    assert {"model", "uploads"} <= set(found.artifacts.values())
    assert found.exit_code == 0
