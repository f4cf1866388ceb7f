"""Whether the classes of a method's parts, a user's own among them, have what the loop asks of them; none is made."""

import dis
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oneshot_fl.config.images import sources_of
from oneshot_fl.config.rules import target_of
from oneshot_fl.errors import OneshotError


class Slot(NamedTuple):
    """What the class of a slot has."""

    called: str
    """What it is, and all that it has."""
    methods: tuple[str, ...]
    values: tuple[str, ...]
    """Of the class, or set on the part when it is made."""


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


def check_parts(settings: Mapping[str, Any]) -> None:
    """Before clients train for a part that cannot take its place.

    Raises:
        OneshotError: the class of a source or of the ensemble lacks something.
    """
    method = settings["method"]
    for key, node in sources_of(method).items():
        _check_class(key, node, SOURCE)
    if method.get("ensemble") is not None:
        _check_class("method.ensemble", method["ensemble"], ENSEMBLE)


def _check_class(key: str, node: Any, slot: Slot) -> None:
    from torch import nn  # not before it is needed

    target = target_of(key, node)
    if not isinstance(target, type):  # what a function makes is known when it is made
        return
    own = [each for each in target.__mro__ if each not in (nn.Module, object)]
    lacking = [] if issubclass(target, nn.Module) else ["is no nn.Module"]
    lacking += [f"has no method {name}" for name in slot.methods if not any(name in vars(each) for each in own)]
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
