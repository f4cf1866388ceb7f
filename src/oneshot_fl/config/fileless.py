"""Parts whose code lies in no file, as a notebook's cells: no key can hold it."""

from collections.abc import Iterator, Mapping
from typing import Any

from oneshot_fl.code import FILELESS, is_fileless
from oneshot_fl.errors import OneshotError

OF_NO_RESULT = ("logger",)
"""Groups whose parts cannot change a number, so that no key holds them."""


def check_files(settings: Mapping[str, Any]) -> None:
    """Whether the code of every part that a result depends on can be read.

    Raises:
        OneshotError: a part's cannot; naming its key.
    """
    for key, target in _targets(settings):
        if not key.startswith(OF_NO_RESULT) and is_fileless(target):
            raise OneshotError(f"{key}._target_={target}: {FILELESS}")


def _targets(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every `_target_` below a node, each with the key of the part that it is of."""
    if not isinstance(node, Mapping):
        return
    if isinstance(target := node.get("_target_"), str):
        yield key, target
    for name, inner in node.items():
        yield from _targets(inner, f"{key}.{name}".strip("."))
