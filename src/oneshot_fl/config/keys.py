"""The groups and keys that some choice of the configuration has, the user's own among them."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.compose import UNREADABLE, choices, config_dir, search_path

OF_OTHERS = ("experiment", "protocol", "local")
"""Groups without keys of their own: their choices set those of other groups."""
LOOKED_UP = re.compile(r"\b(\w+)\.of\.(\w+|\$)")
"""A group, and a name that some choice looks up in its table `of`; `$`: whatever another value says, `${data.name}`."""


def groups() -> Iterable[str]:
    """All config groups as paths: `data`, `method/ensemble`, ..."""
    root = config_dir()
    return (
        str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_dir() and any(path.glob("*.yaml"))
    )


def all_keys(beside: Sequence[str] = ()) -> tuple[str, ...]:
    """Every key that some choice of the configuration has, and every group.

    Args:
        beside: more folders of choices, of a command that Hydra has refused.
    """
    return _keys_below((*search_path(), *beside))


@cache  # a sweep checks every job
def _keys_below(folders: tuple[str, ...]) -> tuple[str, ...]:
    keys = {group for path in groups() for group in (path, path.replace("/", "."))}
    for package, content in _contents(folders):
        if package.startswith(OF_OTHERS):
            continue
        own = {f"{package}.{key}".strip(".") for key in _flat(content)}
        keys |= {key for key in own if not key.startswith("hydra") and "defaults" not in key}
    return tuple(sorted(keys))


def looked_up(group: str) -> tuple[str, ...] | None:
    """The names that some choice looks up in a group's table `of`; None where any name may be."""
    names = {name for each, name in _looked_up_below(tuple(search_path())) if each == group}
    return None if "$" in names else tuple(sorted(names))


@cache
def _looked_up_below(folders: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    return frozenset(found for _, content in _contents(folders) for found in LOOKED_UP.findall(str(content)))


def choices_with(group: str, key: str) -> list[str]:
    """The choices of a group whose own files have a dotted key: `proxy.fraction`."""
    inside = key.removeprefix(f"{group.replace('/', '.')}.")
    return [name for name, path in choices(group).items() if inside in _flat(_content(path))]


@cache
def _contents(folders: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """Every file's package, `method.source`, and what it holds."""
    files = [(Path(folder), path) for folder in folders for path in Path(folder).rglob("*.yaml")]
    return tuple((".".join(path.relative_to(folder).parts[:-1]), _content(path)) for folder, path in files)


def _content(path: Path) -> Any:
    """Nothing of a file that cannot be read: where it is chosen, that is said when the configuration is composed."""
    try:
        return OmegaConf.to_container(OmegaConf.load(path))
    except (*UNREADABLE, OmegaConfBaseException):
        return None


def _flat(node: Any, prefix: str = "") -> list[str]:
    """The dotted names of all keys below a dictionary."""
    if not isinstance(node, dict):
        return []
    names = {f"{prefix}.{key}".strip("."): value for key, value in node.items()}
    return [*names, *(inner for name, value in names.items() for inner in _flat(value, name))]
