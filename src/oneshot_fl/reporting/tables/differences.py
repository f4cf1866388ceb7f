"""Nested settings side by side: which keys differ, and how a label says so."""

import json
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module
from typing import Any

from oneshot_fl.recipe import targets

Settings = dict[str, Any]
"""Nested, or flat: dotted keys and their values."""


def flat(settings: Settings, prefix: str = "") -> Settings:
    """Dotted keys and their values; lists and empty groups are values."""
    found: Settings = {}
    for key, value in settings.items():
        nested = isinstance(value, dict) and value
        found |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def at(settings: Settings, key: str, default: Any = None) -> Any:
    """The value of a dotted key of nested settings."""
    node: Any = settings
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return default
        node = node[part]
    return node


def without(settings: Settings, key: str) -> Settings:
    """Nested settings without the value of a dotted key."""
    name, _, below = key.partition(".")
    if not below:
        return {other: value for other, value in settings.items() if other != name}
    group = settings.get(name)
    return {**settings, name: without(group, below)} if isinstance(group, dict) else settings


def aligned(first: Settings, second: Settings) -> list[str]:
    """The keys of two flat settings; where one has a value and the other a group, the value's key alone."""
    values = first.keys() | second.keys()
    return list(dict.fromkeys(_outermost(key, values) for key in (*first, *second)))


def _outermost(key: str, values: Collection[str]) -> str:
    parts = key.split(".")
    return next(own for n in range(1, len(parts) + 1) if (own := ".".join(parts[:n])) in values)


def same(first: Any, second: Any) -> bool:
    """Whether two values are one and the same setting; numbers agree to nine digits."""
    return canonical(first) == canonical(second)


def canonical(settings: Any) -> str:
    """A text that is equal for nested settings exactly if all their values are the `same`: 1 and 1.0, null and {}."""
    return json.dumps(_canonical(settings), sort_keys=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(inner) for key, inner in value.items()} or None
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    if isinstance(value, float):
        return value if value.is_integer() else float(f"{value:.9g}")
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def below(key: str, prefixes: Iterable[str]) -> bool:
    """Whether a dotted key is one of `prefixes` or lies below one."""
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)


def differing(several: Sequence[Settings]) -> list[Settings]:
    """For each of several nested settings its values of the dotted keys in which they are not all the same."""
    keys: Settings = {}
    for settings in several:
        keys = dict.fromkeys(aligned(keys, flat(settings)))
    unlike = [key for key in keys if any(not same(at(each, key), at(several[0], key)) for each in several)]
    return [{key: at(each, key) for key in unlike} for each in several]


def without_unset(settings: Settings) -> Settings:
    """Flat settings that are not null, which are enough to tell apart: what one lacks another has."""
    return {key: value for key, value in settings.items() if value not in (None, {})}


def listed(settings: Settings, *, whole: bool = False) -> str:
    """Flat settings as one text; parts by their classes, or `whole`, with the modules these are of."""
    return ", ".join(told(key, value, whole=whole) for key, value in settings.items())


def told(key: str, value: Any, *, whole: bool = False) -> str:
    """`key=value`; a part is named by its class."""
    if value is not None and key.endswith("_target_") and not whole:
        value = str(value).rsplit(".", 1)[-1]
    return f"{key.removesuffix('._target_')}={'null' if value is None else value}"


def needs(node: Any, *, unknown: frozenset[str] = frozenset()) -> frozenset[str]:
    """What the parts in nested settings declare to need; `unknown`: of a part that is not installed here."""
    return frozenset().union(*(_declared(target, unknown) for target in targets(node)))


def _declared(target: str, unknown: frozenset[str]) -> frozenset[str]:
    module, _, name = target.rpartition(".")
    try:
        part = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return unknown
    return frozenset(getattr(part, "needs", ()))
