"""What a run is, for reports and comparisons: its choices and every setting that can tell it from another run."""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, flag_override

from oneshot_fl.code import commit
from oneshot_fl.config.clients import client_nodes, server_models, server_name
from oneshot_fl.config.compose import changed, choice, overrides, plain, searched, unresolved
from oneshot_fl.config.compose import choices as chosen_from
from oneshot_fl.config.named import code_of, named

SCHEMA = 1
TRACE = "run.json"
"""The file in a run's folder that holds its record and how it stands."""
SUMMARY = "summary.json"
"""The file there, and beside an aggregated model, that holds what was found."""
CONFIG, MODEL = "config.yaml", "server.safetensors"
"""Beside it: every value, resolved, and the server's model."""
EXPORT, EXPORTED = "export", {"onnx": "model.onnx", "torch": "model.pt2"}
"""The folder there for what other programs read, and the model's file in it by its format."""
NOT_COMPARED = (
    *("hydra", "logger", "store", "workers", "study", "experiment", "protocol", "budget", "data_root"),
    *("model", "cvae", "server_model"),
    *("data.cache", "data.download", "evaluate", "plots", "trainer.jobs_per_gpu", "trainer.cuda_graphs"),
)
"""Keys that change nothing that a run finds but by rounding, or that others say (a budget, a model).

Everything else tells runs apart, also groups that did not exist when this was written.
"""


SERVER = "server:"
"""What stands before the name of the server's architecture where a client has another one of that name."""
SAME_SEED = "${seed}"
"""How a seed is written that follows the run's own."""
UNLIKE_BEFORE: dict[str, Any] = {
    "distill.held_out": 0.0,
    "distill.calibrate": True,
    "distill.images": 1000,  # to which the temperature is fitted, and with it AUROC, calibration and abstention
    "development": False,
    "hearing": {},
    "clients.initial_weights": "shared",
    "clients.randomness": "seeded",
}
"""Keys of this version with the value at which a run is what it was before there was the key: told where it is not."""


def record(cfg: DictConfig, config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's choices, its settings, and the code it runs, as built-in types.

    `changed` holds the method's keys whose values differ from what `method=NAME` alone gives.

    Args:
        config: the same configuration, plain, with what was resolved on this machine.
    """
    clients = client_nodes(cfg)
    return {
        **choices(cfg),
        "changed": changed(cfg),
        "usual_rounds": _usual_rounds(cfg),
        "models": {"clients": [node.name for node in clients], "server": server_name(cfg)},
        "settings": {
            **compared(config, unresolved(cfg)),
            "models": _models(clients, server_models(cfg)),
            **_evaluate(cfg),
        },
        "code": {"digest": code_of(config, named(config)), "commit": commit()},
    }


def is_of_development(summary: Mapping[str, Any]) -> bool:
    """Whether its figures are of training images held back (`development=true`), not of the test set.

    Those of an aggregation, whose summary has no settings, never are.
    """
    return bool(summary.get("settings", {}).get("development"))


def _usual_rounds(cfg: DictConfig) -> int | None:
    """What `distill.rounds` is of methods for which nobody says how many they need; None where only this one has it."""
    bare = deepcopy(cfg)
    with flag_override(bare, ["struct", "readonly"], False):
        bare.method = {"name": "-"}
        return cast(int | None, OmegaConf.select(bare, "distill.rounds", throw_on_resolution_failure=False))


def _models(clients: Sequence[DictConfig], servers: Sequence[DictConfig]) -> dict[str, Any]:
    """The settings of every architecture by its name; the server's apart where they are not a client's of that name."""
    own, others = (
        {node.name: compared(plain(node), unresolved(node)) for node in nodes} for nodes in (clients, servers)
    )
    return own | {
        name if own.get(name, settings) == settings else f"{SERVER}{name}": settings
        for name, settings in others.items()
    }


def _evaluate(cfg: DictConfig) -> dict[str, Any]:
    """What of `evaluate` changes a row of the ensembles that another run has too.

    So of the ensembles only those that are not as their choice alone gives them: who tests one more, or one less, finds
    the same of all others.
    """
    usual = unresolved(choice("evaluate", "default"))["batch_size"]  # one ensemble normalises by the batch at hand
    rows = unresolved(cfg.evaluate.ensembles)
    own = {name: row for name, row in rows.items() if row != _alone(name)}
    size = cfg.evaluate.batch_size
    found = {**({"ensembles": own} if own else {}), **({} if size == usual else {"batch_size": size})}
    return {"evaluate": found} if found else {}


def _alone(ensemble: str) -> dict[str, Any]:
    group = "method/ensemble"
    return unresolved(choice(group, ensemble)) if ensemble in chosen_from(group) else {}


def choices(cfg: DictConfig) -> dict[str, Any]:
    """What can be told of a run even where its configuration is wrong."""
    names = ("method.name", "data.name", "budget.name", "study", "seed")
    method, data, budget, study, seed = (_selected(cfg, name) for name in names)
    return {
        "schema": SCHEMA,
        "study": study,
        "method": method,
        "changed": {},
        "usual_rounds": None,
        "data": data,
        "budget": budget,
        "seed": seed,
        "models": {"clients": [], "server": ""},
        "settings": {},
        "overrides": overrides(),
        "searched": searched(),
    }


def compared(config: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings without `NOT_COMPARED`, without seeds that follow the run's own, and without lookups (`of`).

    Args:
        raw: the same, unresolved: a seed that was set tells runs apart, also where the run's own happens to equal it.
    """
    return _without(config, raw, "")


def without(config: Mapping[str, Any], keys: Collection[str], prefix: str = "") -> dict[str, Any]:
    """Nested settings without some dotted keys."""
    return {
        key: without(value, keys, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in config.items()
        if f"{prefix}{key}" not in keys
    }


def _without(node: Mapping[str, Any], raw: Any, prefix: str) -> dict[str, Any]:
    written = raw if isinstance(raw, Mapping) else {}
    return {
        key: _without(value, written.get(key), f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in node.items()
        if f"{prefix}{key}" not in NOT_COMPARED
        and key != "of"
        and not (key == "seed" and (not prefix or written.get(key) == SAME_SEED))
        and UNLIKE_BEFORE.get(f"{prefix}{key}", ...) != value
    }


def _selected(cfg: DictConfig, name: str) -> Any:
    value = OmegaConf.select(cfg, name, default=None, throw_on_missing=False, throw_on_resolution_failure=False)
    return plain(value)
