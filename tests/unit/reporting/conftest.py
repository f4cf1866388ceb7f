"""Runs without running: what `read_runs` would make of a summary."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from omegaconf import DictConfig

from oneshot_fl.config.clients import client_nodes, server_name
from oneshot_fl.config.compose import plain, unresolved
from oneshot_fl.config.record import compared
from oneshot_fl.reporting.tables.papers.expected import composition
from oneshot_fl.reporting.tables.run import Run

PRINTED = ("mnist", "fashion_mnist", "svhn", "cifar10")
"""FedHydra's data sets."""
Make = Callable[..., Run]
Reached = dict[float, dict[str, tuple[float, ...]]]
"""By alpha and method, of seeds 0, 1, ..., fractions."""


def record(cfg: DictConfig) -> dict[str, Any]:
    """What a run's record tells of a configuration."""
    return {
        "method": cfg.method.name,
        "data": cfg.data.name,
        "budget": cfg.budget.name,
        "study": cfg.study,
        "models": {"clients": [node.name for node in client_nodes(cfg)], "server": server_name(cfg)},
        "settings": deepcopy(compared(plain(cfg), unresolved(cfg))),
    }


@pytest.fixture
def make_run() -> Make:
    """A function from what differs to a run: FedHydra's protocol on MNIST, Dir(0.1), one accuracy on the server."""

    def make(accuracy: float | None = 0.6, *, method: str = "fedhydra", data: str = "mnist", **changes: Any) -> Run:
        own = {"study": method, "data": data, **changes}
        own["settings"] = merged({"partition": {"alpha": 0.1}}, changes.get("settings", {}))
        return _run(composition("fedhydra/table1", data if data in PRINTED else "mnist", method), accuracy, **own)

    return make


@pytest.fixture
def make_runs(make_run: Make) -> Callable[[Reached], list[Run]]:
    """A function from what was reached, by alpha and method, in seeds 0, 1, ... to the runs."""

    def make(reached: Reached) -> list[Run]:
        return [
            make_run(value, method=method, seed=seed, settings={"partition": {"alpha": alpha}})
            for alpha, rows in reached.items()
            for method, values in rows.items()
            for seed, value in enumerate(values)
        ]

    return make


@pytest.fixture
def make_paper_run() -> Make:
    """A function from a table, a method, a data set and what differs to a run of that table's own command."""

    def make(table: str, method: str, data: str, accuracy: float | None = 0.6, **changes: Any) -> Run:
        return _run(composition(table, data, method), accuracy, **changes)

    return make


@pytest.fixture
def make_fedmho_run() -> Make:
    """A function from method and data set to a run under FedMHO's protocol (Table 3), Dir(0.1), 10 clients."""

    def make(method: str, accuracy: float | None = 0.6, *, data: str = "mnist", rounds: int = 0, **changes: Any) -> Run:
        table = merged({"partition": {"alpha": 0.1}}, {"distill": {"rounds": rounds}} if rounds else {})
        settings = merged(table, changes.pop("settings", {}))
        return _run(composition("fedmho/table4", data, method), accuracy, settings=settings, **changes)

    return make


def _run(cfg: DictConfig, accuracy: float | None, **changes: Any) -> Run:
    facts = record(cfg)
    settings = merged(facts["settings"], changes.pop("settings", {}))
    summary = None if accuracy is None else _summary(accuracy, changes.pop("rows", {"uniform": 0.5}))
    status = "done" if summary else "failed"
    known = {**facts, "changed": {}, "seed": 0, "status": status, "complete": True, "settings": settings, **changes}
    return Run(**known, summary=summary)


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
            for exchange in range(5)
        ],
    }


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Nested settings with others laid over them."""
    both = {
        key: merged(own if isinstance(own := first.get(key), dict) else {}, value) if isinstance(value, dict) else value
        for key, value in second.items()
    }
    return {**first, **both}
