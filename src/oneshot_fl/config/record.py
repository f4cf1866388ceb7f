"""What a run is, for reports and comparisons: its choices and every setting that can tell it from another run."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oneshot_fl.code import commit
from oneshot_fl.config.clients import client_nodes, server_models, server_name
from oneshot_fl.config.compose import changed, overrides, plain
from oneshot_fl.config.named import code_of, named

SCHEMA = 1
TRACE = "run.json"
"""The file in a run's folder that holds its record and how it stands."""
NOT_COMPARED = (
    *("hydra", "logger", "store", "workers", "study", "experiment", "protocol", "budget", "data_root"),
    *("model", "cvae", "server_model"),
    *("data.cache", "data.download", "distill.images", "evaluate", "plots", "trainer.jobs_per_gpu"),
)
"""Keys that change nothing that a run finds, or are said by others (a budget by its numbers, a model by `models`).

Everything else tells runs apart, also groups that did not exist when this was written.
"""


UNLIKE_BEFORE: dict[str, Any] = {"distill.held_out": 0.0, "development": False, "hearing": {}}
"""Keys of this version with the value at which a run is what it was before there was the key: told where it is not."""


def record(cfg: DictConfig, config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's choices, its settings, and the code it runs, as built-in types.

    `changed` holds the method's keys whose values differ from what `method=NAME` alone gives.

    Args:
        config: the same configuration, plain, with what was resolved on this machine.
    """
    clients = client_nodes(cfg)
    models = {node.name: compared(plain(node), cfg.seed) for node in (*clients, *server_models(cfg))}
    return {
        **choices(cfg),
        "changed": changed(cfg),
        "models": {"clients": [node.name for node in clients], "server": server_name(cfg)},
        "settings": {**compared(config, cfg.seed), "models": models},
        "code": {"digest": code_of(config, named(config)), "commit": commit()},
    }


def choices(cfg: DictConfig) -> dict[str, Any]:
    """What can be told of a run even where its configuration is wrong."""
    names = ("method.name", "data.name", "budget.name", "study", "seed")
    method, data, budget, study, seed = (_selected(cfg, name) for name in names)
    return {
        "schema": SCHEMA,
        "study": study,
        "method": method,
        "changed": {},
        "data": data,
        "budget": budget,
        "seed": seed,
        "models": {"clients": [], "server": ""},
        "settings": {},
        "overrides": overrides(),
    }


def compared(config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Nested settings without `NOT_COMPARED`, without seeds that follow the run's own, and without lookups (`of`)."""
    return _without(config, seed, "")


def _without(node: Mapping[str, Any], seed: int, prefix: str) -> dict[str, Any]:
    return {
        key: _without(value, seed, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in node.items()
        if f"{prefix}{key}" not in NOT_COMPARED
        and key != "of"
        and not (key == "seed" and value == seed)
        and UNLIKE_BEFORE.get(f"{prefix}{key}", ...) != value
    }


def _selected(cfg: DictConfig, name: str) -> Any:
    value = OmegaConf.select(cfg, name, default=None, throw_on_missing=False, throw_on_resolution_failure=False)
    return plain(value)
