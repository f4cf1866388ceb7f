"""Runs without running: what `read_runs` would make of a summary."""

from typing import Any

import pytest

from oneshot_fl.reporting.runs import Run

SETTINGS: dict[str, Any] = {
    "proxy": {"name": "noise", "samples": 10000},
    "partition": {"name": "dirichlet", "clients": 5, "alpha": 0.1, "min_samples": 10},
    "model": {"name": "cnn2"},
    "generator": {"name": "conv", "width": 64},
    "clients": {"epochs": 200, "batch_size": 128, "optimizer": {"lr": 0.01}, "augmentation": "none", "sam": None},
    "stratify": {"steps": 30},
    "distill": {"rounds": 200, "generator_steps": 30, "batch_size": 128},
    "method": {"source": None},
    "trainer": {"precision": "32-true"},
    "communication_rounds": 1,
}


@pytest.fixture
def make_run():
    """A function from what differs to a run: FedHydra's protocol on MNIST, one accuracy on the server."""

    def make(accuracy: float | None = 0.6, *, settings: dict[str, Any] | None = None, **changes: Any) -> Run:
        summary = None if accuracy is None else _summary(accuracy, changes.pop("rows", {"uniform": 0.5}))
        facts = {
            "method": "fedhydra",
            "changed": {},
            "data": "mnist",
            "budget": "paper",
            "study": "fedhydra",
            "seed": 0,
            "models": {"clients": ["cnn2"] * 5, "server": "cnn2"},
            "settings": _merged(SETTINGS, settings or {}),
            "status": "done" if summary else "failed",
        } | changes
        return Run(**facts, summary=summary)

    return make


def _summary(accuracy: float, rows: dict[str, float]) -> dict[str, Any]:
    clients = [0.2, 0.4, 0.2, 0.4, 0.3]
    return {
        "protocol": "p",
        "clients": [{"accuracy": value} for value in clients],
        "ensemble": {"rows": rows},
        "server": {"accuracy_last": accuracy, "accuracy_best": accuracy + 0.1},
        "rounds": [{"round": 1, "accuracy": accuracy}],
        "communication": [
            {
                "clients": clients,
                "ensembles": rows,
                "accuracy_last": accuracy + exchange / 100,
                "accuracy_best": accuracy + 0.1,
            }
            for exchange in range(3)
        ],
    }


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(first.get(key) or {}, value) if isinstance(value, dict) else value for key, value in second.items()
    }
    return {**first, **both}
