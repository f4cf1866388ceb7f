"""What is known of a run before it begins, and the trace that it leaves even where it fails (`run.json`)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.compose import changed, client_nodes, plain, server_models, server_name
from oneshot_fl.files import write_atomically

SCHEMA = 1
TRACE = "run.json"
GROUPS = ("proxy", "partition", "generator", "clients", "stratify", "distill", "method", "trainer")

REPORTED = ("images", "fidelity")
"""Settings of what a run tells; they change nothing that it does, so runs are compared whatever they are."""


def facts(cfg: DictConfig) -> dict[str, Any]:
    """What a run compares and under which settings, as built-in types.

    `changed` holds the method's keys whose values differ from what `method=NAME` alone gives.
    """
    clients = client_nodes(cfg)
    return {
        "schema": SCHEMA,
        "study": cfg.study,
        "method": cfg.method.name,
        "changed": changed(cfg),
        "data": cfg.data.name,
        "budget": cfg.budget.name,
        "seed": cfg.seed,
        "models": {
            "clients": [model.name for model in clients],
            "server": server_name(cfg),
        },
        "settings": {
            **{group: {"name": cfg[group].get("name"), **settings(cfg[group])} for group in GROUPS},
            "models": {
                model.name: settings(model) for model in (*clients, *server_models(cfg))
            },  # however they were chosen
            "communication_rounds": cfg.communication_rounds,
        },
    }


def settings(node: DictConfig) -> dict[str, Any]:
    """A group's own settings.

    Neither its name, target or seed, nor where files lie, the tables that it looks up (`of`), or what is only reported.
    """
    hidden = {"name", "_target_", "_partial_", "seed", "root", "cache", "download", "of", *REPORTED}
    return {key: value for key, value in plain(node).items() if key not in hidden}


@contextmanager
def traced(cfg: DictConfig, folder: Path) -> Iterator[None]:
    """Keep `run.json` in `folder` while a run is on: its facts, and whether it is running, done or failed.

    A run that is killed leaves it at `running`.
    """
    told = facts(cfg)
    _write(folder, {**told, "status": "running"})
    try:
        yield
    except Exception as error:
        _write(folder, {**told, "status": "failed", "error": " ".join(str(error).split())})
        raise
    _write(folder, {**told, "status": "done"})


def _write(folder: Path, trace: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / TRACE, json.dumps(trace, indent=1))
