"""What each group of the configuration holds: a node with a `_target_`, or settings from a table of types."""

from collections.abc import Mapping
from typing import Annotated, Any

from oneshot_fl.config.group_types import TOP, Optimizer, tables
from oneshot_fl.config.method import INSIDE, check_entry, check_no_rest, check_terms
from oneshot_fl.config.rules import (
    MISSING,
    Parameter,
    check_call,
    check_group,
    check_optimizer,
    check_table,
    check_takes_spec,
    check_value,
    taken_by,
    target_of,
)
from oneshot_fl.errors import OneshotError
from oneshot_fl.values import NOT_EMPTY, Count, Name, PathText

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
    "of": Parameter(dict[str, Name], required=False),
}
"""A choice of `model` or `cvae` that stands for several architectures."""
MAY_BE_NULL = ("evaluate.fidelity", "evaluate.privacy", "method.warm_up")
OF_LOGGERS: dict[str, Any] = {"flush_logs_every_n_steps": Count}
"""What a logger of Lightning's takes and states no more than `int` of; it divides by it."""
STEPS = ("attack", "gate", "hearing")
"""Groups that may hold one part that is handed the uploads."""


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
        check_entry(f"logger.{name}", node)
        check_call(f"logger.{name}", node, given={"save_dir"}, known=OF_LOGGERS, labelled=False)
    for name, node in settings["evaluate"]["ensembles"].items():
        check_entry(f"evaluate.ensembles.{name}", node)
        check_call(f"evaluate.ensembles.{name}", node, first=1)
        _check_row(f"evaluate.ensembles.{name}", node)
    _check_tested(settings["method"].get("ensemble"), settings["evaluate"]["ensembles"])
    check_call("recite.generator", settings["recite"]["generator"], given=INSIDE)
    check_terms("recite.objective", settings["recite"]["objective"])
    for step in STEPS:
        check_group(step, settings.get(step))
        check_no_rest(step, settings[step], f"no {step} is chosen")
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
    if "other" not in taken_by(target_of("proxy", node)):
        raise OneshotError(f"proxy.data: proxy={node.get('name')} is of no other data set; choose proxy=dataset")
    check_value("proxy.data", node["data"], Name)
    check_value("proxy.root", node.get("root"), PathText)
    return {name: value for name, value in node.items() if name not in ("data", "root")}


def inside(settings: Mapping[str, Any], key: str) -> Any:
    """What a dotted key holds; None where there is no such key."""
    node: Any = settings
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
