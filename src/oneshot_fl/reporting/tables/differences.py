"""Nested settings side by side: which keys differ, and how a label says so."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

Settings = dict[str, Any]
"""Nested, or flat: dotted keys and their values."""


def flat(settings: Settings, prefix: str = "") -> Settings:
    """Dotted keys and their values; lists and empty groups are values."""
    found: Settings = {}
    for key, value in settings.items():
        nested = isinstance(value, dict) and value
        found |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def same(first: Any, second: Any) -> bool:
    """Whether two values are one and the same setting; numbers agree to nine digits."""
    if isinstance(first, float) and isinstance(second, float | int):
        return math.isclose(first, second, rel_tol=1e-9)
    return bool(first == second) or {json.dumps(first), json.dumps(second)} == {"null", "{}"}


def below(key: str, prefixes: Iterable[str]) -> bool:
    """Whether a dotted key is one of `prefixes` or lies below one."""
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)


def distinguishing(several: Sequence[Settings]) -> list[str]:
    """For each of several nested settings the keys and values in which it is unlike the others, as one text each."""
    all_flat = [flat(settings) for settings in several]
    keys = dict.fromkeys(key for settings in all_flat for key in settings)
    differing = [key for key in keys if any(not same(each.get(key), all_flat[0].get(key)) for each in all_flat)]
    return [", ".join(told(key, each.get(key)) for key in differing) for each in all_flat]


def told(key: str, value: Any) -> str:
    """`key=value`; a part is named by its class."""
    if key.endswith("_target_"):
        return f"{key.removesuffix('._target_')}={str(value).rsplit('.', 1)[-1]}"
    return f"{key}={'null' if value is None else value}"


def needs(node: Any) -> frozenset[str]:
    """What the parts in nested settings declare to need; a part that is not installed here declares nothing."""
    return frozenset().union(*(_declared(target) for target in _targets(node)))


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from ([str(node["_target_"])] if "_target_" in node else [])
        for value in node.values():
            yield from _targets(value)


def _declared(target: str) -> frozenset[str]:
    module, _, name = target.rpartition(".")
    try:
        part = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return frozenset()
    return frozenset(getattr(part, "needs", ()))
