"""A search over settings with Optuna: it chooses by held-out synthetic images, and says so."""

import json

import pytest

from tests.pipeline.cli import call

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
SEARCH = (
    *("-m", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.sampler.seed=0", "method=dense"),
    "distill.student_optimizer.lr=tag(log,interval(0.0001,0.1))",
)
VALIDATED = ("evaluate.validation=synthetic", "distill.held_out=0.25", "hydra.sweep.dir=search")


@pytest.mark.slow
def test_a_search_minimises_disagreement_and_reports_its_best_beside_the_number_of_trials(tmp_path):
    done = call(*SEARCH, *VALIDATED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summaries = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.rglob("summary.json")}
    assert len(summaries) == 3
    found = {folder: each["validation"] for folder, each in summaries.items()}
    assert {(each["of"], each["images"]) for each in found.values()} == {("synthetic", 3 * 8)}
    best = json.loads((tmp_path / "search" / "best.json").read_text())
    assert best["validation"]["disagreement"] == min(each["disagreement"] for each in found.values())
    assert (best["trials"], best["done"]) == (3, 3)
    assert "best of 3 trials by " in done.stderr
    assert "by which nothing was chosen" in done.stderr


def test_a_search_without_validation_is_refused_before_anything_is_trained(tmp_path):
    done = call(*SEARCH, cwd=tmp_path)
    assert done.returncode == 2
    assert "a search must not choose by test images; set evaluate.validation=synthetic" in done.stderr
    assert not list(tmp_path.rglob("summary.json"))
