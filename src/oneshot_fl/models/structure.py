"""What makes two models one architecture: whether one may be averaged with the other, or stand in for it."""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

from torch import Tensor, nn

NESTED = 5
"""How deep settings are looked into: a function may hold itself."""
PLAIN = frozenset(vars(nn.Module()))
"""What every module has: its tensors, its modules, its hooks and whether it trains."""
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""In how objects call themselves that say nothing else of what they are."""
NOTES: defaultdict[type, set[str]] = defaultdict(set)
"""Attributes that modules of a class were seen to change when they were asked (`noted`)."""


def structure(model: nn.Module) -> str:
    """A text that is equal for two models exactly if they have the same modules, tensor names, shapes and settings.

    Settings are what a module keeps as attributes, as a slope, an activation or a configuration, also in lists, dicts
    and objects; tensors and modules are none, nor is what a module notes of its images (`noted`). The text is for
    models of one process: another one calls the same function otherwise.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    return f"{model}{shapes}{[_settings(module) for module in model.modules()]}"


@contextmanager
def noted(model: nn.Module) -> Iterator[None]:
    """While the block asks a model: what its modules change meanwhile are notes, as `self.h, self.w = x.shape[-2:]`.

    Of a model that was asked and of one that was not they differ, and both are of one architecture.
    """
    before = [(module, _settings(module)) for module in model.modules()]
    yield
    for module, then in before:
        now = _settings(module)
        NOTES[type(module)] |= {name for name in then.keys() | now.keys() if then.get(name) != now.get(name)}


def all_alike(models: Iterable[nn.Module]) -> bool:
    """Whether there is only one architecture among the models."""
    return len({structure(model) for model in models}) <= 1


def _settings(module: nn.Module) -> dict[str, Any]:
    """With the class, since modules of two classes may be called alike."""
    return {"class": _told(type(module)), **_told_by_name(vars(module), NESTED, without=PLAIN | NOTES[type(module)])}


def _told(value: Any, depth: int = NESTED) -> Any:
    """A setting as plain values; None of what is none."""
    if depth == 0 or isinstance(value, Tensor | nn.Module):
        return None
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return _told_by_name(value, depth - 1)
    if isinstance(value, list | tuple | Set):
        inner = [_told(each, depth - 1) for each in value]
        return sorted(inner, key=str) if isinstance(value, Set) else inner
    return _told_object(value, depth)


def _told_by_name(values: Mapping[Any, Any], depth: int, *, without: Container[str] = ()) -> dict[str, Any]:
    """The settings among the values."""
    told = {str(name): _told(value, depth) for name, value in values.items() if name not in without}
    return {name: value for name, value in told.items() if value is not None}


def _told_object(value: Any, depth: int) -> Any:
    """A function by its name and what it holds, an object by what it says of itself, or else by what it holds."""
    if isinstance(value, partial):
        return _told([value.func, value.args, value.keywords], depth)
    if callable(value) and hasattr(value, "__qualname__"):
        return [getattr(value, "__module__", None), value.__qualname__, *_lines(value, depth)]
    if type(value).__repr__ is object.__repr__:
        return [_told(type(value)), _told_by_name(getattr(value, "__dict__", {}), depth - 1)]
    return ADDRESS.sub("", repr(value))


def _lines(function: Any, depth: int) -> list[Any]:
    """Of a function in Python what its name does not say: two lambdas of one line are called alike."""
    if not isinstance(function, FunctionType):
        return []
    bound = [cell.cell_contents for cell in function.__closure__ or ()]
    return [hash(function.__code__), _told([*(function.__defaults__ or ()), *bound], depth - 1)]
