"""Code is part of every key: what changed is computed again without a word, and nothing else."""

import json

import pytest

from tests.pipeline.cli import call, environment

MODEL = """
import torch
from torch import nn

class Signed(nn.Sequential):
    def forward(self, x):
        return SIGN * super().forward(x)

def build(spec):
    # a comment
    return Signed(nn.Flatten(), nn.Linear(spec.channels * spec.size**2, spec.classes))
"""
YAML = "name: signed\n_target_: my_model.build\n"
ARGUMENTS = ("model=signed", "method=fedavg", "clients.epochs=2", "trainer=cpu", "plots.format=none")


@pytest.fixture
def run(tmp_path):
    """A function that writes the user's model and runs it; the artifacts that are new, by phase, and the accuracy."""
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "signed.yaml").write_text(YAML)

    def runs(source: str, *more: str):
        (tmp_path / "my_model.py").write_text(source)
        before = set((tmp_path / "store").glob("*/*/manifest.json"))
        folder = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
        arguments = ("--config-dir", str(tmp_path / "conf"), *ARGUMENTS, *more, f"hydra.run.dir={folder}")
        variables = environment(tmp_path / "store") | {"PYTHONPATH": str(tmp_path)}
        assert call(*arguments, cwd=tmp_path, tiny=False, variables=variables).returncode == 0
        new = set((tmp_path / "store").glob("*/*/manifest.json")) - before
        summary = json.loads((folder / "summary.json").read_text())
        return sorted({path.parents[1].name for path in new}), summary

    return runs


def test_changed_code_does_not_come_out_of_the_store_and_what_it_does_not_touch_does(run):
    plus = MODEL.replace("SIGN", "1") + "\nfrom oneshot_fl.parts.inits import Fresh\n"
    made, first = run(plus)
    assert made == ["clients", "distill"]
    made, again = run(plus.replace("# a comment", "# another comment"))
    assert made == []
    assert again["code"]["digest"] == first["code"]["digest"]
    minus = plus.replace("return 1", "return -1")
    made, changed = run(minus)
    assert made == ["clients", "distill"]
    assert changed["code"]["digest"] != first["code"]["digest"]
    made, _ = run(minus, "method=dense", "distill.rounds=1", "distill.generator_steps=1")
    assert made == ["distill"]  # another method leaves the clients alone
