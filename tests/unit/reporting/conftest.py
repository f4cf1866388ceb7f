"""Runs without running: what `read_runs` would make of a summary."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from omegaconf import DictConfig

from oneshot_fl.config.compose import client_nodes, plain, server_name
from oneshot_fl.experiment import compared
from oneshot_fl.reporting.tables.papers.published import PAPERS, of_study
from oneshot_fl.reporting.tables.runs import Run
from tests.conftest import compose_config

Make = Callable[..., Run]
PROXY_SOURCE = {"_target_": "oneshot_fl.parts.sources.ProxySource"}


@cache
def _composed(*overrides: str) -> DictConfig:
    return compose_config(*overrides)


def record(cfg: DictConfig) -> dict[str, Any]:
    """What a run's record tells of a configuration."""
    return {
        "method": cfg.method.name,
        "data": cfg.data.name,
        "budget": cfg.budget.name,
        "study": cfg.study,
        "models": {"clients": [node.name for node in client_nodes(cfg)], "server": server_name(cfg)},
        "settings": deepcopy(compared(plain(cfg))),
    }


@pytest.fixture
def make_run() -> Make:
    """A function from what differs to a run: FedHydra's protocol on MNIST, Dir(0.1), one accuracy on the server."""

    def make(
        accuracy: float | None = 0.6, *, study: str = "", method: str = "fedhydra", data: str = "mnist", **changes: Any
    ) -> Run:
        summary = None if accuracy is None else _summary(accuracy, changes.pop("rows", {"uniform": 0.5}))
        models = [] if data in ("mnist", "fashion_mnist", "svhn", "cifar10") else ["model=cnn2"]
        cfg = _composed("experiment=fedhydra/table1", "partition.alpha=0.1", f"data={data}", f"method={method}", *models)
        facts = {
            **record(cfg),
            "changed": {},
            "study": study or method,
            "seed": 0,
            "status": "done" if summary else "failed",
            "complete": True,
        }
        settings = _merged(facts["settings"], changes.pop("settings", {}))
        return Run(**{**facts, "settings": settings, **changes}, summary=summary)

    return make


@pytest.fixture
def make_paper_run() -> Make:
    """A function from a table, a method, a data set and what differs to a run of that table's own command."""

    def make(study: str, method: str, data: str, accuracy: float | None = 0.6, **changes: Any) -> Run:
        paper = PAPERS[study.split("/")[0]]
        overrides = changes.pop("overrides", ())
        cfg = _composed(f"experiment={study}", *paper.overrides, f"data={data}", f"method={method}", *overrides)
        summary = None if accuracy is None else _summary(accuracy, changes.pop("rows", {"uniform": 0.5}))
        facts = {**record(cfg), "changed": {}, "seed": 0, "status": "done" if summary else "failed", "complete": True}
        settings = _merged(facts["settings"], changes.pop("settings", {}))
        assert of_study(study)
        return Run(**{**facts, "settings": settings, **changes}, summary=summary)

    return make


@pytest.fixture
def make_fedmho_run(make_paper_run: Make) -> Make:
    """A function from method and data set to a run under FedMHO's protocol (Table 3), Dir(0.1), 10 clients."""

    def make(method: str, accuracy: float | None = 0.6, *, data: str = "mnist", rounds: int = 0, **changes: Any) -> Run:
        settings = _merged({"distill": {"rounds": rounds}} if rounds else {}, changes.pop("settings", {}))
        overrides = ("partition.alpha=0.1",)
        return make_paper_run("fedmho/table4", method, data, accuracy, overrides=overrides, settings=settings, **changes)

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
        key: _merged(own if isinstance(own := first.get(key), dict) else {}, value)
        if isinstance(value, dict)
        else value
        for key, value in second.items()
    }
    return {**first, **both}
