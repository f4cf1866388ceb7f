"""What a method's file sets of its own choice for a slot, left over where another choice fills the slot."""

import shlex
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.compose import chosen_method, published_method, unresolved
from oneshot_fl.config.group_types import SLOTS
from oneshot_fl.config.rules import not_taken
from oneshot_fl.errors import OneshotError


def check_left_over(cfg: DictConfig, method: Any) -> None:
    """A slot's settings are its part's, where the method's own choice for the slot has made place for another.

    Args:
        method: the method's settings, resolved.

    Raises:
        OneshotError: the method's file sets what the chosen part does not take; has the words that leave it out.
    """
    nodes = {slot: method.get(slot) for slot in SLOTS} if isinstance(method, Mapping) else {}
    for slot, node in nodes.items():
        if not isinstance(node, Mapping) or "_target_" not in node:
            continue
        key = f"method.{slot}"
        unknown = not_taken(key, node)
        if unknown and (left := [name for name in unknown if name in _of_the_file(cfg, slot)]):
            who, words = node["_target_"].rpartition(".")[2], shlex.join(f"~{key}.{name}" for name in left)
            raise OneshotError(
                f"{key}.{left[0]}: is left over from the {slot} that method={chosen_method(cfg)} has by itself, and "
                f"{who} does not take it; add {words}"
            )


def _of_the_file(cfg: DictConfig, slot: str) -> list[str]:
    """The settings that the method's choice alone gives its own part in the slot, if that is another part."""
    own, node = published_method(cfg).get(slot), unresolved(cfg.method)[slot]
    if not isinstance(own, Mapping) or own.get("_target_") == node["_target_"]:
        return []
    return [name for name, value in own.items() if name in node and _is_within(node[name], value)]


def _is_within(value: Any, whole: Any) -> bool:
    """Whether a value is the file's: of settings inside it the own choice of the slot may add some."""
    if isinstance(value, Mapping) and isinstance(whole, Mapping):
        return all(name in whole and _is_within(each, whole[name]) for name, each in value.items())
    return bool(value == whole)
