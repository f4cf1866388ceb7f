"""What each group of the configuration holds: a node with a `_target_`, or settings from a table of types."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from oneshot_fl.config.rules import (
    MISSING,
    Parameter,
    check_call,
    check_group,
    check_optimizer,
    check_table,
    check_value,
    shown,
    target_of,
)
from oneshot_fl.errors import OneshotError
from oneshot_fl.values import (
    BatchSize,
    Clients,
    Count,
    CountOrZero,
    Images,
    LearningRate,
    Name,
    PathText,
    Positive,
    Rule,
    Seed,
    Width,
)

Optimizer = Mapping[str, Any]
"""A node that `check_optimizer` looks into."""
Fidelity = Annotated[Mapping[str, Any], Rule("a group of settings (evaluate=fidelity)", bool)]
Schedule = Literal["constant", "cosine"]
LOOKUP = Parameter(dict, required=False)
"""Tables that other values are looked up in."""

TOP: dict[str, Any] = {
    "seed": Seed,
    "server_model": Name | None,
    "communication_rounds": Clients,
    "store": PathText,
    "study": Name | int,
}
TABLES: dict[str, dict[str, Any]] = {
    "budget": {
        "name": Name,
        "local_epochs": CountOrZero,
        "local_epochs_multi_round": CountOrZero,
        "local_epochs_cvae": CountOrZero,
        "rounds": CountOrZero,
        "generator_steps": Count,
        "generator_width": Width,
        "of": LOOKUP,
    },
    "clients": {
        "epochs": CountOrZero,
        "batch_size": BatchSize,
        "optimizer": Optimizer,
        "augmentation": Literal["none", "flip", "crop", "crop_flip"],
        "sam": Positive | None,
        "lr_of": dict[str, LearningRate] | None,
        "seed": Seed,
        "kinds": Any,
        "cvae": Mapping[str, Any],
        "of": LOOKUP,
    },
    "clients.cvae": {"epochs": CountOrZero, "batch_size": BatchSize, "optimizer": Optimizer},
    "stratify": {
        "steps": Count,
        "batch_size": BatchSize,
        "classes_at_once": Count | Literal["auto"],
        "min_loss": Positive,
        "optimizer": Optimizer,
        "seed": Seed,
    },
    "distill": {
        "rounds": CountOrZero,
        "generator_steps": Count,
        "batch_size": BatchSize,
        "bank": Literal["auto", "loop", "stacked"],
        "clients_at_once": Count | None,
        "generator_optimizer": Optimizer,
        "student_optimizer": Optimizer,
        "student_schedule": Schedule,
        "images": Images,
        "seed": Seed,
    },
    "evaluate": {"ensembles": Mapping[str, Any], "batch_size": BatchSize, "fidelity": Fidelity | None},
    "evaluate.fidelity": {
        "model": Name | None,
        "epochs": CountOrZero,
        "batch_size": BatchSize,
        "optimizer": Optimizer,
        "samples": Annotated[Images, Rule("a whole number of at least 4", lambda value: value >= 4)],
        "seed": Seed,
    },
    "trainer": {
        "accelerator": Literal["auto", "cpu", "gpu", "cuda", "mps"],
        "precision": Literal["auto", "32-true", "bf16-mixed", "16-mixed"],
        "channels_last": bool,
        "matmul_precision": Literal["highest", "high", "medium"],
    },
    "method.warm_up": {"passes": CountOrZero, "student": Mapping[str, Any], "optimizer": Optimizer},
}
"""Everything that a group without a `_target_` takes; whatever else is set in it is an error."""
CALLED: dict[str, frozenset[str]] = {
    "data": frozenset(),
    "proxy": frozenset({"data", "other"}),
    "partition": frozenset({"labels", "domains"}),
    "generator": frozenset({"spec"}),
    "model": frozenset({"spec"}),
    "cvae": frozenset({"spec"}),
}
"""Groups with a `_target_`, and what the program itself passes to it."""
ARCHITECTURES: dict[str, Any] = {
    "name": Name,
    "shares": Parameter(Any, required=False),
    "of": LOOKUP,
}
"""A choice of `model` or `cvae` that stands for several architectures."""
SERVER = frozenset({"server", "optimizer", "spec"})
"""What a slot of a method may be handed besides its settings."""
SLOTS: dict[str, bool] = {"init": True, "ensemble": False, "perturb": False, "pool": True, "source": True}
"""The slots that hold one part each, and whether a method that makes images must fill them."""
METHOD: dict[str, Any] = {
    "name": Name,
    **dict.fromkeys(SLOTS, Parameter(Any, required=False)),
    "objective": Parameter(Mapping[str, Any], required=False),
    "student": Parameter(Mapping[str, Any], required=False),
    "warm_up": Parameter(Mapping[str, Any] | None, required=False),
    "student_optimizer": Parameter(Optimizer | None, required=False),
    "student_schedule": Parameter(Schedule | None, required=False),
    "per_architecture": Parameter(bool, required=False),
    "of": LOOKUP,
}


def check_top(settings: Mapping[str, Any]) -> None:
    """What stands alone at the top of the configuration.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    check_table("", {name: value for name, value in settings.items() if name in TOP}, TOP)
    for name, value in settings.items():
        if name not in TOP and value is not None:
            check_group(str(name), value)


def check_tables(settings: Mapping[str, Any]) -> None:
    """Groups without a `_target_`, and the optimisers inside them.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    for key, table in TABLES.items():
        node = _inside(settings, key)
        if node is None and key in ("evaluate.fidelity", "method.warm_up"):
            continue
        check_table(key, node, table)
        for name, hint in table.items():
            if hint is Optimizer:
                check_optimizer(f"{key}.{name}", node[name])


def check_called(settings: Mapping[str, Any]) -> None:
    """Groups with a `_target_`, and the loggers.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    for group, given in CALLED.items():
        check_group(group, settings.get(group))
        check_node(group, settings[group], given)
    check_group("logger", settings.get("logger"))
    for name, node in settings["logger"].items():
        check_call(f"logger.{name}", node, given={"folder", "config"})
    for name, node in settings["evaluate"]["ensembles"].items():
        check_call(f"evaluate.ensembles.{name}", node, given=SERVER)


def check_node(group: str, node: Mapping[str, Any], given: frozenset[str]) -> None:
    """One choice of a group: a call, or the names of other choices."""
    if group in ("model", "cvae") and "_target_" not in node:
        names = node.get("names")
        if names is not None and names != MISSING:
            check_value(f"{group}.names", names, list[str])
        check_table(group, {name: value for name, value in node.items() if name != "names"}, ARCHITECTURES)
        return
    if group == "proxy" and "data" in node:
        node = _without_source(node)
    check_value(f"{group}.name", node.get("name"), Name)
    check_call(group, node, given=given)


def _without_source(node: Mapping[str, Any]) -> dict[str, Any]:
    """A proxy's settings without those that say which other data set it is of."""
    check_value("proxy.data", node["data"], Name)
    check_value("proxy.root", node.get("root"), PathText)
    return {name: value for name, value in node.items() if name not in ("data", "root")}


def check_method(method: Any, lookups: frozenset[str]) -> None:
    """The slots of a method; `lookups` are the tables beside them that some method has.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    check_group("method", method)
    tables = {name: LOOKUP for name in lookups if name not in METHOD}
    check_table("method", method, {**METHOD, **tables})
    makes_images = method.get("source") is not None
    for slot, needed in SLOTS.items():
        if method.get(slot) is not None:
            _check_slot(f"method.{slot}", method[slot])
        elif slot == "init" or (needed and makes_images):
            raise OneshotError(f"method.{slot}: method={method['name']} needs one; choose it with method/{slot}=NAME")
    for slot in ("objective", "student"):
        if makes_images or method.get(slot) is not None:
            _check_terms(f"method.{slot}", method.get(slot))
    if method.get("warm_up") is not None:
        _check_terms("method.warm_up.student", method["warm_up"].get("student"))
    if method.get("student_optimizer") is not None:
        check_optimizer("method.student_optimizer", method["student_optimizer"])


def _check_slot(key: str, node: Any) -> None:
    check_group(key, node)
    if "_target_" not in node and node and all(isinstance(value, Mapping) for value in node.values()):
        for name, part in node.items():  # several sources fill one pool
            _check_slot(f"{key}.{name}", part)
        return
    settings = dict(node)
    if key.startswith("method.source"):
        optimizer = settings.pop("optimizer", None)
        if optimizer is not None:
            check_optimizer(f"{key}.optimizer", optimizer)
        elif "generator" in settings:
            raise OneshotError(f"{key}.optimizer: is missing, and a generator is trained; set method/source anew")
    check_call(key, settings, given=SERVER)


def _check_terms(key: str, terms: Any) -> None:
    check_group(key, terms)
    for name, term in terms.items():
        own = f"{key}.{name}"
        if not isinstance(term, Mapping) or "_target_" not in term:
            weight = 0 if term is None else shown(term)
            raise OneshotError(f"{own}={shown(term)}: must be a term with a weight; write {own}.weight={weight}")
        check_call(own, term)
        if "weight" not in inspect.signature(target_of(own, term)).parameters:
            raise OneshotError(f"{own}._target_={term['_target_']}: takes no weight, which every term of a loss has")


def _inside(settings: Mapping[str, Any], key: str) -> Any:
    node: Any = settings
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
