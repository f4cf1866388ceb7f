"""Whole runs whose steps are replayed, by a stand-in for CUDA's graphs, find what plain runs find."""

from functools import partial

import pytest

from oneshot_fl.phases import replay
from tests.composing import run_config

LONGER = (
    "partition.clients=2",
    "clients.epochs=1",
    "clients.batch_size=64",
    "distill.rounds=5",
    "distill.generator_steps=5",
    "stratify.steps=5",
)
"""Enough steps of every kind to replay some."""


EXACTLY, ROUNDED = 0.0, 0.01
"""A learning rate that moves within a pass has fewer digits where steps read it from the device."""


@pytest.mark.parametrize(  # generators are replayed in every round, students in those with 4 batches or more
    ("method", "batch", "of_the_server", "within"),
    [
        ("dense", 8, 5 + 2, EXACTLY),
        ("fedhydra", 8, 5 + 2, EXACTLY),
        ("co_boosting", 8, 5 + 2, EXACTLY),
        ("fedchorus", 64, 5, ROUNDED),
    ],
)
def test_replayed_runs_find_what_plain_ones_find(tiny, tmp_path, monkeypatch, method, batch, of_the_server, within):
    captured = []

    def run(name: str):
        overrides = (f"method={method}", f"store={tmp_path / name / 'store'}", f"distill.batch_size={batch}", *LONGER)
        return run_config(tiny(*overrides), tmp_path / name)

    def by_steps(step, static):
        captured.append(getattr(step, "__name__", "step"))
        return partial(step, static)

    plain = run("plain")
    monkeypatch.setattr(replay, "captured", by_steps)
    monkeypatch.setattr(
        replay.Replays, "setup", lambda _self, _trainer, module, stage: setattr(module, "replays", True)
    )
    replayed = run("replayed")
    assert "step" in captured  # of a client
    assert captured.count("noted") == of_the_server  # whose steps note the terms of their losses
    for mine, other in zip(replayed["rounds"], plain["rounds"], strict=True):
        for who in ("generator", "student"):
            assert mine[who] == pytest.approx(other[who], rel=within, abs=0)
    for mine, other in zip(replayed["clients"], plain["clients"], strict=True):
        assert mine["accuracy"] == other["accuracy"]
    assert replayed["guidance"] == plain["guidance"]
    for phase in ("clients", "stratify", "distill"):
        assert replayed["cost"][phase]["macs"] == plain["cost"][phase]["macs"]
