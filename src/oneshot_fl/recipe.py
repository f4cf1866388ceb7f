"""Parts that are chosen but not made yet, and how keys and records tell of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

from oneshot_fl.code import digest, module_of

T = TypeVar("T")


@dataclass(frozen=True)
class Recipe(Generic[T]):
    """A class or function with its settings, waiting for what only a run knows."""

    settings: Mapping[str, Any]
    """Plain, with `_target_`: what a key depends on."""
    target: Callable[..., T]
    make: Callable[..., T]
    """The target with its settings filled in."""

    @property
    def needs(self) -> frozenset[str]:
        """What the part declares that it needs."""
        return needs_of(self.target)

    @property
    def name(self) -> str:
        """What reports call it."""
        return str(self.settings.get("name", ""))

    def __call__(self, *given: Any, **named: Any) -> T:
        """The part."""
        return self.make(*given, **named)


def needs_of(part: Any) -> frozenset[str]:
    """What a part, or the class or function that makes it, declares that it needs."""
    return getattr(part, "needs", frozenset())


def described(value: Any) -> Any:
    """Dataclasses, recipes and containers as plain containers, for a key: every field counts."""
    if isinstance(value, Recipe):
        return described(value.settings)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: described(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): described(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [described(inner) for inner in value]
    return value


def targets(settings: Any) -> list[str]:
    """Every `_target_` in plain nested settings, in order, once."""
    found: dict[str, None] = {}
    _collect(settings, found)
    return list(found)


def _collect(node: Any, found: dict[str, None]) -> None:
    if isinstance(node, Mapping):
        if isinstance(node.get("_target_"), str):
            found[node["_target_"]] = None
        node = list(node.values())
    for inner in node if isinstance(node, list | tuple) else ():
        _collect(inner, found)


def digest_of(phase: str, inputs: Any, *others: str) -> str:
    """A digest of the code that a phase's result depends on: its own module's, and that of every `_target_` inside.

    Args:
        others: modules that do the work and that neither the phase's module nor the inputs name.
    """
    return digest([phase, *others, *map(module_of, targets(inputs))])
