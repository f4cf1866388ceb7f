"""Whether the classes of a method's parts, a user's own among them, have what the loop asks of them; none is made."""

import dis
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from oneshot_fl.config.groups import inside
from oneshot_fl.config.method import sources_of
from oneshot_fl.config.rules import target_of
from oneshot_fl.errors import OneshotError, did_you_mean
from oneshot_fl.fits import shown
from oneshot_fl.recipe import NEEDS_OF_POOL, NEEDS_OF_RUN, NEEDS_OF_SERVER, NEEDS_OF_VIEW, NEEDS_OF_VOTES, needs_of


class Slot(NamedTuple):
    """What the class of a slot has."""

    called: str
    """What it is, and all that it has."""
    methods: tuple[str, ...]
    """What is called itself has `__call__`, which of an nn.Module is its `forward`."""
    values: tuple[str, ...]
    """Of the class, or set on the part when it is made."""
    module: bool = True
    """Whether it is an nn.Module."""


SOURCE = Slot(
    "a source is an nn.Module with optimizer (None: nothing to train), reset, begin(rng) and make(turn)",
    methods=("begin", "make"),
    values=("optimizer", "reset"),
)
ENSEMBLE = Slot(
    "an ensemble is an nn.Module with needs, forward(votes), remember, recall and refit, for instance a subclass of "
    "oneshot_fl.parts.ensembles.Fixed",
    methods=("forward", "remember", "recall", "refit"),
    values=("needs",),
)
PERTURB = Slot(
    "a perturbation has draw(count, rng), and is called with images, the teacher and what was drawn",
    methods=("draw", "__call__"),
    values=(),
    module=False,
)
INIT = Slot(
    "an init is called with the student as it was built, and returns it as it begins",
    methods=("__call__",),
    values=(),
    module=False,
)
TERM = Slot(
    "a loss term is called with a view, and returns a scalar",
    methods=("__call__",),
    values=(),
    module=False,
)


TERMS = ("method.objective", "method.student", "method.warm_up.student", "recite.objective")
OF_PART = NEEDS_OF_SERVER | NEEDS_OF_RUN
OF_ENSEMBLE = OF_PART | NEEDS_OF_VOTES | NEEDS_OF_POOL


def check_parts(settings: Mapping[str, Any]) -> None:
    """Before clients train for a part that cannot take its place.

    Raises:
        OneshotError: the class of a slot's part or of a loss term lacks something, or a part needs what there is not.
    """
    for key, node in terms_at(settings, TERMS).items():
        _check_needs(key, node, "a loss term", NEEDS_OF_VIEW)
        _check_class(key, node, TERM)
    for key, node in _made_with_server(settings).items():
        _check_needs(key, node, "a part", OF_PART)
    for key, node in _ensembles(settings).items():
        _check_needs(key, node, "an ensemble", OF_ENSEMBLE)
    method = settings["method"]
    for key, node in sources_of(method).items():
        _check_class(key, node, SOURCE)
    for name, slot in (("init", INIT), ("ensemble", ENSEMBLE), ("perturb", PERTURB)):
        if method.get(name) is not None:
            _check_class(f"method.{name}", method[name], slot)


def terms_at(settings: Mapping[str, Any], groups: Iterable[str]) -> dict[str, Any]:
    """The named loss terms of groups by their keys."""
    return {f"{group}.{name}": node for group in groups for name, node in (inside(settings, group) or {}).items()}


def tested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The ensembles that are tested beside the method's own, by their keys."""
    return {f"evaluate.ensembles.{name}": row for name, row in settings["evaluate"]["ensembles"].items()}


def _made_with_server(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Parts that are made with the server, but for ensembles; the hearing hears with what the server has."""
    single = {key: inside(settings, key) for key in ("method.init", "method.perturb", "hearing")}
    return {key: node for key, node in single.items() if node} | sources_of(settings["method"])


def _ensembles(settings: Mapping[str, Any]) -> dict[str, Any]:
    own = inside(settings, "method.ensemble")
    return tested(settings) if own is None else {"method.ensemble": own, **tested(settings)}


def _check_needs(key: str, node: Any, who: str, known: frozenset[str]) -> None:
    """A part's needs are names of what there is to need: nothing would meet, or ask for, any other."""
    needs = needs_of(target_of(key, node))
    start, example = f"{key}._target_={node['_target_']}: ", min(known)
    if not isinstance(needs, frozenset | set) or not all(isinstance(name, str) for name in needs):
        raise OneshotError(
            f'{start}its needs are {shown(needs)}, and must be a set of names: needs = frozenset({{"{example}"}})'
        )
    if unknown := sorted(needs - known):
        raise OneshotError(
            f"{start}it needs {shown(unknown[0])}, which there is not{did_you_mean(unknown[0], sorted(known))}; {who} "
            f"may need {', '.join(sorted(known))}"
        )


def _check_class(key: str, node: Any, slot: Slot) -> None:
    from torch import nn  # not before it is needed

    target = target_of(key, node)
    if not isinstance(target, type):  # what a function makes is known when it is made
        return
    own = [each for each in target.__mro__ if each not in (nn.Module, object)]
    is_module = issubclass(target, nn.Module)
    lacking = ["is no nn.Module"] if slot.module and not is_module else []
    methods = ["forward" if is_module and name == "__call__" else name for name in slot.methods]
    lacking += [f"has no method {name}" for name in methods if not any(name in vars(each) for each in own)]
    lacking += [f"has no {name}" for name in slot.values if not (hasattr(target, name) or _sets(own, name))]
    if lacking:
        raise OneshotError(f"{key}._target_={node['_target_']}: {' and '.join(lacking)}; {slot.called}")


def _sets(classes: list[type], name: str) -> bool:
    """Whether some method sets a value on the part (`self.reset = reset`), as far as its code says."""
    functions = [value for each in classes for value in vars(each).values() if inspect.isfunction(value)]
    return any(_stores(function, name) for function in functions)


def _stores(function: Callable[..., Any], name: str) -> bool:
    return any(
        step.opname == "STORE_ATTR" and step.argval == name for step in dis.get_instructions(inspect.unwrap(function))
    )
