"""Runs without running: what `read_runs` would make of a summary."""

from typing import Any

import pytest

from oneshot_fl.reporting.tables.runs import Run

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


RATES = {"mnist": (0.005, 0.05), "svhn": (0.005, 0.001), "emnist": (0.001, 0.003)}
EPOCHS = {"mnist": (30, 10), "svhn": (40, 20), "emnist": (50, 30)}
GLOBAL = {"mnist": 0.00001, "svhn": 0.00005, "emnist": 0.00005}
SMALL = {"mnist": "cvae_mlp", "svhn": "cvae_conv3", "emnist": "cvae_conv2"}
HALF = {"classifier": 1, "cvae": 1}


@pytest.fixture
def make_fedmho_run(make_run):
    """A function from method and data set to a run under FedMHO's protocol (Table 3), Dir(0.1), 10 clients."""

    def make(method: str, accuracy: float | None = 0.6, *, data: str = "mnist", rounds: int = 0, **changes: Any) -> Run:
        decodes = method.startswith("fedmho")
        large, small = ("cvae_large", SMALL[data]) if method == "fedcvae_fedmho" else ("vgg9", "fedmho_cnn")
        clients = [large] * 5 + [SMALL[data] if decodes else small] * 5
        server = "vgg9+fedmho_cnn" if method in ("fedavg", "feddf") else "vgg9"
        own = EPOCHS[data][1] if decodes or method == "fedcvae_fedmho" else {"feddf": 38}.get(method, 200)
        settings = {
            "partition": {"clients": 10},
            "clients": {
                "batch_size": 64,
                "optimizer": {"_target_": "torch.optim.SGD", "lr": RATES[data][0]},
                "kinds": ["cvae"] if method == "fedcvae_fedmho" else HALF if decodes else None,
                "cvae": {"batch_size": 64, "epochs": EPOCHS[data][0], "optimizer": {"lr": RATES[data][1]}},
            },
            "distill": {"batch_size": 64, "rounds": rounds or own},
            "method": {
                "source": {"_target_": "oneshot_fl.parts.sources.ProxySource"} if method == "feddf" else None,
                "student_optimizer": {"lr": 0.0002 if (method, data) == ("fedcvae_fedmho", "svhn") else GLOBAL[data]},
            },
        }
        facts = {"study": "fedmho/table4", "budget": "fedmho", "models": {"clients": clients, "server": server}}
        settings = _merged(settings, changes.pop("settings", {}))
        return make_run(accuracy, method=method, data=data, settings=settings, **facts | changes)

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
