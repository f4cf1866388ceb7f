"""The class or function of a dotted name: imported, and where that fails, what to say about it."""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oneshot_fl.errors import OneshotError, did_you_mean, one_line


def called_by(name: Any, told: str) -> Callable[..., Any]:
    """The class or function that is called by a dotted name.

    Args:
        name: for instance `my_models.small`; whatever somebody has written in its place.
        told: what errors call it: the key, or the option, and its value.

    Raises:
        OneshotError: it is no such name, there is nothing of that name, or it cannot be imported or called.
    """
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")) or "." not in name:
        raise OneshotError(f"{told}: must be the dotted name of a class or function")
    try:
        found = _imported(name)
    except (ImportError, AttributeError) as error:
        where = _where_looked(name, error)
        raise OneshotError(f"{told}: cannot be imported ({one_line(error)}){where}") from error
    except (Exception, SystemExit) as error:  # the user's own module: whatever it raises while it is imported
        raise OneshotError(
            f"{told}: its module cannot be imported ({type(error).__name__}: {one_line(error)})"
        ) from error
    if not callable(found):
        raise OneshotError(f"{told}: is no class or function, but {type(found).__name__}")
    return found


def _imported(name: str) -> Any:
    """The object of a dotted name: a module, as long as there is one, and what is inside it.

    Raises:
        AttributeError: what is there has nothing of the next name inside it.
    """
    parts = name.split(".")
    found: Any = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], start=1):
        if not hasattr(found, part):
            _import_inside(found, parts[:depth], part)
        found = getattr(found, part)
    return found


def _import_inside(found: Any, outer: list[str], part: str) -> None:
    """The module `part` of a package; an import that fails inside of that module is told as it is."""
    path = ".".join([*outer, part])
    try:
        importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise
        near = did_you_mean(part, _names_inside(found))
        raise AttributeError(f"{'.'.join(outer)} has no {part}{near}") from error


def _names_inside(found: Any) -> list[str]:
    """Of what is in a module or class, and of a package's modules, imported or not."""
    return [*dir(found), *(module.name for module in pkgutil.iter_modules(getattr(found, "__path__", ())))]


def _where_looked(name: str, error: ImportError | AttributeError) -> str:
    """Where modules are looked for, if there is none of the first part's name."""
    if not isinstance(error, ModuleNotFoundError) or error.name != name.partition(".")[0]:
        return ""
    looked = "and in" if {"", str(Path.cwd())} & {*sys.path} else "but not in"
    return f"; modules are looked for among installed packages {looked} the current folder"
