"""What each group of the configuration holds: a node with a `_target_`, or settings from a table of types."""

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_origin

from oneshot_fl.config.rules import (
    MISSING,
    Parameter,
    check_call,
    check_group,
    check_optimizer,
    check_table,
    check_takes_spec,
    check_value,
    parameters_of,
    target_of,
)
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import shown
from oneshot_fl.recipe import Recipe
from oneshot_fl.values import (
    NOT_EMPTY,
    BatchSize,
    Clients,
    Count,
    CountOrZero,
    LearningRate,
    Name,
    NotNegative,
    PathText,
    Rule,
    Seed,
    Width,
)

Optimizer = Mapping[str, Any]
"""A node that `check_optimizer` looks into."""
Fidelity = Annotated[Mapping[str, Any], Rule("a group of settings (evaluate=fidelity)", bool)]
Privacy = Annotated[Mapping[str, Any], Rule("a group of settings (evaluate=privacy)", bool)]
Entry = NotNegative | str | list[NotNegative | str] | dict[str, NotNegative | str | list[str] | dict[str, NotNegative]]
LOOKUP = Parameter(dict[str, Entry], required=False)
"""Tables that other values are looked up in."""
TOP: dict[str, Any] = {
    "seed": Seed,
    "server_model": Name | None,
    "communication_rounds": Clients,
    "workers": Clients,
    "development": bool,
    "data_root": PathText,
    "store": PathText,
    "study": PathText | int,
}


def _of(cls: type, *names: str) -> dict[str, Parameter]:
    """What a dataclass takes, or only those of its fields; its recipes are optimisers' nodes here."""
    taken = parameters_of(cls)
    return {
        name: taken[name]._replace(hint=Optimizer) if get_origin(taken[name].hint) is Recipe else taken[name]
        for name in names or taken
    }


@cache
def tables() -> dict[str, dict[str, Any]]:
    """Everything that each group without a `_target_` takes; whatever else is set in it is an error."""
    from oneshot_fl.experiment import Plots
    from oneshot_fl.parts.slots import Schedule  # torch and lightning: not for --help
    from oneshot_fl.phases.clients.training import Training
    from oneshot_fl.phases.distill import Distillation
    from oneshot_fl.phases.fidelity import FidelityReference
    from oneshot_fl.phases.privacy import Audit
    from oneshot_fl.phases.recite import Recitation
    from oneshot_fl.phases.stratify import Stratification
    from oneshot_fl.phases.trainer import TrainerSettings
    from oneshot_fl.phases.validate import Images

    epochs = dict.fromkeys(("local_epochs", "local_epochs_multi_round", "local_epochs_cvae", "rounds"), CountOrZero)
    return {
        "budget": {"name": Name, **epochs, "generator_steps": Count, "generator_width": Width, "of": LOOKUP},
        "clients": {
            **_of(Training),
            "lr_of": dict[str, LearningRate] | None,
            "kinds": Any,
            "cvae": Mapping[str, Any],
            "of": LOOKUP,
        },
        "clients.cvae": _of(Training, "epochs", "batch_size", "optimizer"),
        "stratify": _of(Stratification),
        "recite": {**_of(Recitation), "generator": Mapping[str, Any], "objective": Mapping[str, Any]},
        "distill": {
            **_of(Distillation),
            "generator_steps": Count,
            "generator_optimizer": Optimizer,
            "student_optimizer": Optimizer,
            "student_schedule": Schedule,
        },
        "evaluate": {
            "ensembles": Mapping[str, Any],
            "batch_size": BatchSize,
            "fidelity": Fidelity | None,
            "validation": Images | None,
            "privacy": Privacy | None,
        },
        "evaluate.fidelity": {
            **_of(Training, "epochs", "batch_size", "optimizer", "seed"),
            **_of(FidelityReference, "samples"),
            "model": Name | None,
        },
        "evaluate.privacy": {
            **_of(Training, "epochs", "batch_size", "optimizer", "seed"),
            **_of(Audit, "references", "samples"),
            "model": Name | None,
        },
        "trainer": _of(TrainerSettings),
        "plots": _of(Plots),
        "method": {
            "name": Name,
            **dict.fromkeys(SLOTS, Parameter(Any, required=False)),
            "objective": Parameter(Mapping[str, Any], required=False),
            "student": Parameter(Mapping[str, Any], required=False),
            "warm_up": Parameter(Mapping[str, Any] | None, required=False),
            "student_optimizer": Parameter(Optimizer | None, required=False),
            "student_schedule": Parameter(Schedule | None, required=False),
            "per_architecture": Parameter(bool, required=False),
            "of": LOOKUP,
        },
        "method.warm_up": {"passes": CountOrZero, "student": Mapping[str, Any], "optimizer": Optimizer},
    }


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
MAY_BE_NULL = ("evaluate.fidelity", "evaluate.privacy", "method.warm_up")
STEPS = ("attack", "gate", "hearing")
"""Groups that may hold one part that is handed the uploads."""
INSIDE = frozenset({"spec"})
"""What a part of a slot's part is handed."""
SLOTS: dict[str, bool] = {"init": True, "ensemble": False, "perturb": False, "pool": True, "source": True}
"""The slots that hold one part each, and whether a method that makes images must fill them."""


def check_top(settings: Mapping[str, Any]) -> None:
    """What stands alone at the top of the configuration.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    check_table("", {name: value for name, value in settings.items() if name in TOP}, TOP)


def check_tables(settings: Mapping[str, Any]) -> None:
    """Groups without a `_target_`, and the optimisers inside them.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    for key, table in tables().items():
        node = inside(settings, key)
        if key == "method" or (node is None and key in MAY_BE_NULL):
            continue
        check_table(key, node, table)
        for name, hint in table.items():
            if getattr(hint, "hint", hint) == Optimizer and name.endswith("optimizer"):
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
        check_call(f"logger.{name}", node, given={"save_dir"})
    for name, node in settings["evaluate"]["ensembles"].items():
        check_call(f"evaluate.ensembles.{name}", node, first=1)
        _check_row(f"evaluate.ensembles.{name}", node)
    _check_tested(settings["method"].get("ensemble"), settings["evaluate"]["ensembles"])
    check_call("recite.generator", settings["recite"]["generator"], given=INSIDE)
    _check_terms("recite.objective", settings["recite"]["objective"])
    for step in STEPS:
        check_group(step, settings.get(step))
        if settings[step]:
            check_call(step, settings[step], given=INSIDE)


def _check_row(key: str, node: Mapping[str, Any]) -> None:
    """Rows are asked about test images alone, of which nothing may be learnt."""
    from oneshot_fl.parts.ensembles import Fixed  # torch: not before it is needed

    if getattr(target_of(key, node), "refit", Fixed.refit) is not Fixed.refit:
        raise OneshotError(
            f"{key}: is fitted to the images that a method's own ensemble teaches on, and a row has none; choose it as "
            f"the method's (method/ensemble={node.get('name')}), which is a row too, or leave it out (~{key})"
        )


def _check_tested(own: Mapping[str, Any] | None, rows: Mapping[str, Any]) -> None:
    """Results tell of the method's own ensemble by its name, in the place of a row of the same ensemble."""
    if own is None:
        return
    if "name" not in own:
        raise OneshotError("method.ensemble.name: is missing, and results need it; set method.ensemble.name=NAME")
    row = rows.get(own["name"])
    if row is not None and row["_target_"] != own["_target_"]:
        raise OneshotError(
            f"method.ensemble.name={own['name']}: evaluate.ensembles.{own['name']} is another ensemble; give one of "
            "them a name of its own"
        )


def check_node(group: str, node: Mapping[str, Any], given: frozenset[str]) -> None:
    """One choice of a group: a call, or the names of other choices."""
    if group in ("model", "cvae") and "_target_" not in node:
        names = node.get("names")
        if names != MISSING:
            check_value(f"{group}.names", names, Annotated[list[str], NOT_EMPTY])
        check_table(group, {name: value for name, value in node.items() if name != "names"}, ARCHITECTURES)
        return
    if group == "proxy" and "data" in node:
        node = _without_source(node)
    check_value(f"{group}.name", node.get("name"), Name)
    if group in ("model", "cvae"):
        check_takes_spec(group, node)
    check_call(group, node, given=given)


def _without_source(node: Mapping[str, Any]) -> dict[str, Any]:
    """A proxy's settings without those that say which other data set it is of."""
    check_value("proxy.data", node["data"], Name)
    check_value("proxy.root", node.get("root"), PathText)
    return {name: value for name, value in node.items() if name not in ("data", "root")}


def check_method(method: Any) -> None:
    """The slots of a method.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    check_group("method", method)
    check_table("method", method, tables()["method"])
    for slot in SLOTS:
        _check_no_rest(method, slot)
    makes_images = method.get("source") is not None
    for slot, needed in SLOTS.items():
        if method.get(slot) is not None:
            _check_slot(f"method.{slot}", method[slot])
        elif slot == "init" or (needed and makes_images):
            named = f"choose it with method/{slot}=NAME"
            unnamed = f"add `- {slot}: NAME` to the defaults of its file, or choose it with +method/{slot}=NAME"
            raise OneshotError(
                f"method.{slot}: method={method['name']} needs one; {named if slot in method else unnamed}"
            )
    for slot, used in {"objective": _is_trained(method), "student": makes_images}.items():
        if method.get(slot) is not None:
            _check_terms(f"method.{slot}", method[slot])
        elif used:
            none = " (or objective: {} where its images follow from no loss)" if slot == "objective" else ""
            raise OneshotError(
                f"method.{slot}: is missing, and method={method['name']} trains; write a loss in its file, "
                f"{slot}: {{NAME: {{_target_: ..., weight: 1.0}}}}{none}"
            )
    if method.get("warm_up") is not None:
        _check_terms("method.warm_up.student", method["warm_up"].get("student"))
    if method.get("student_optimizer") is not None:
        check_optimizer("method.student_optimizer", method["student_optimizer"])


def _is_trained(method: Mapping[str, Any]) -> bool:
    """Whether a source has an optimiser; others draw or show their images, and an objective says nothing to them."""
    return any("optimizer" in node for node in sources_of(method).values())


def _check_no_rest(method: Mapping[str, Any], slot: str) -> None:
    """A key that a sweep sets by `++` is no part of a method that lacks the slot."""
    node = method.get(slot)
    if not isinstance(node, Mapping) or not node:
        return
    if not any(key == "_target_" or isinstance(value, Mapping) for key, value in node.items()):
        key, value = next(iter(node.items()))
        raise OneshotError(
            f"method.{slot}.{key}={shown(value)}: method={method['name']} has no {slot} (no method.{slot}._target_); "
            "leave the key to methods that have one, in a sweep of theirs"
        )


def _check_slot(key: str, node: Any) -> None:
    check_group(key, node)
    if "_target_" not in node and node and all(isinstance(value, Mapping) for value in node.values()):
        for name, part in node.items():  # several sources fill one pool
            _check_slot(f"{key}.{name}", part)
        return
    check_call(key, node, first=1, given=INSIDE)


def _check_terms(key: str, terms: Any) -> None:
    check_group(key, terms)
    for name, term in terms.items():
        own = f"{key}.{name}"
        if isinstance(term, Mapping) and "_target_" not in term:
            whole = [other for other, node in terms.items() if isinstance(node, Mapping) and "_target_" in node]
            raise OneshotError(
                f"{own}: there is no such term here ({', '.join(whole) or 'none'}), and a new one needs "
                f"{own}._target_; leave its keys to methods that have it, in a sweep of theirs"
            )
        if not isinstance(term, Mapping):
            weight = 0 if term is None else shown(term)
            raise OneshotError(f"{own}={shown(term)}: must be a term with a weight; write {own}.weight={weight}")
        check_call(own, term)
        if "weight" not in inspect.signature(target_of(own, term)).parameters:
            raise OneshotError(f"{own}._target_={term['_target_']}: takes no weight, which every term of a loss has")


def sources_of(method: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The nodes of a method's sources of images by their keys, in their order."""
    node = method.get("source")
    if node is None:
        return {}
    if "_target_" in node:
        return {"method.source": node}
    return {f"method.source.{name}": each for name, each in node.items() if each is not None}


def inside(settings: Mapping[str, Any], key: str) -> Any:
    """What a dotted key holds; None where there is no such key."""
    node: Any = settings
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
