"""What parts of a user's own keep where no checkpoint looks, told by comparing it with what it was before."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from oneshot_fl.artifacts import tensor_hash
from oneshot_fl.code import PACKAGE
from oneshot_fl.recipe import home_of, made_of_ours

SCALARS = (int, float, complex, str, type(None))
DEEPEST = 100
"""Objects inside of each other that are looked into; what lies deeper counts as changed."""
OF_MODULES = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
"""What every module has besides its tensors: whether it is trained, hooks, names."""
OF_OPTIMIZERS = frozenset(vars(torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr=1.0)))
OF_OPTIMIZERS |= {"_need_device_dtype_check_for_fused"}
"""What every optimiser has, its `state` and groups among it, which are saved, and a switch of those that are fused."""
SAVE_THEIR_STATE = {PACKAGE, "torch", "pytorch_optimizer"}
"""Packages whose optimisers keep all of it in `state`."""
IN_CLASS = ", in its class"
"""How the name ends of what lies in a class."""
NOT_LOOKED_INTO = {PACKAGE, "torch", "torchvision", "lightning"}
"""Packages whose objects are let be: they keep nothing for parts, or lead everywhere."""


def traces(
    parts: Mapping[str, Any], lasting: Iterable[nn.Module], optimizers: Mapping[str, torch.optim.Optimizer]
) -> dict[str, Any]:
    """What stays equal for as long as the plain attributes of users' parts and optimisers do, by what they are.

    Attributes of their classes are among them. It is for comparison in one process only.

    Args:
        parts: by what they are; ours are left out.
        lasting: modules that are saved, so that their tensors are none of the matter.
        optimizers: by what they train.
    """
    saved = {id(tensor) for module in lasting for tensor in _saved(module)}
    own = [(name, part, _plain(part)) for name, part in parts.items() if not made_of_ours(part)]
    own += [(f"optimiser of {who}", one, _of_optimizer(one)) for who, one in optimizers.items()]
    return {
        f"{name} ({type(part).__name__}{key})": (_Look(saved)(value),)  # in a tuple, which finds a NaN like itself
        for name, part, attributes in own
        for key, value in attributes
    }


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Of two `traces` the names of what is not the same, or is only in one of them."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def in_classes(names: Iterable[str]) -> list[str]:
    """Of names of `changed` those of what lies in a class, where the next run of the same process finds it."""
    return [name for name in names if name.endswith(f"{IN_CLASS})")]


def _saved(module: nn.Module) -> Iterator[Tensor]:
    """The tensors of its state."""
    left_out = {id(tensor) for each in module.modules() for _, tensor in _left_out(each)}
    yield from module.parameters()
    yield from (tensor for tensor in module.buffers() if id(tensor) not in left_out)


def _left_out(module: nn.Module) -> list[tuple[str, Any]]:
    """Its buffers that its state lacks."""
    return [(name, module._buffers.get(name)) for name in sorted(module._non_persistent_buffers_set)]


def _plain(part: Any) -> list[tuple[str, Any]]:
    """A part's plain attributes, and those of the modules in it that are not ours, each with its dotted name."""
    if not isinstance(part, nn.Module):
        own = [(f".{name}", value) for name, value in vars(part).items()] if hasattr(part, "__dict__") else [("", part)]
        return own + [(f".{name}", value) for name, value in _of_class(part)]
    modules = [(f".{path}" if path else "", each) for path, each in part.named_modules() if not made_of_ours(each)]
    return [(f"{path}.{name}", value) for path, each in modules for name, value in _of_module(each)]


def _of_module(module: nn.Module) -> list[tuple[str, Any]]:
    """What it and its class have besides what is saved; a weight made of saved ones (`weight_norm`) is none of it."""
    own = [(name, value) for name, value in vars(module).items() if name not in OF_MODULES]
    made = {name for name, _ in own if {f"{name}_orig", f"{name}_g"} & module._parameters.keys()}
    return [(name, value) for name, value in own if name not in made] + _left_out(module) + _of_class(module)


def _of_class(part: Any) -> list[tuple[str, Any]]:
    """What lies in the classes of a part that are a user's own: all objects of them share it."""
    own = [
        each for each in type(part).__mro__ if each.__module__.partition(".")[0] not in {*NOT_LOOKED_INTO, "builtins"}
    ]
    found = {name: value for each in reversed(own) for name, value in vars(each).items() if not name.startswith("__")}
    return [(f"{name}{IN_CLASS}", value) for name, value in found.items()]


def _of_optimizer(optimizer: torch.optim.Optimizer) -> list[tuple[str, Any]]:
    if home_of(optimizer) in SAVE_THEIR_STATE:
        return []
    return [(f".{name}", value) for name, value in vars(optimizer).items() if name not in OF_OPTIMIZERS]


def _held(value: Any) -> Iterable[Any] | None:
    """What lies in a container, or in something of torch's; None of what is none of that."""
    if type(value) in (list, tuple):
        return value
    if type(value) is dict:
        return [*value, *value.values()]
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers(), *(each for _, each in _plain(value))]
    if isinstance(value, torch.Generator):
        return [value.get_state().cpu().numpy().tobytes()]
    return [value.state_dict()] if home_of(value) == "torch" and hasattr(value, "state_dict") else None


def _numbers(tensor: Tensor) -> Any:
    """What a tensor holds, also where it was written past torch; an object like no other where nobody can read it."""
    try:
        return tensor_hash([tensor])
    except (RuntimeError, NotImplementedError):  # sparse, nested, conjugate, without numbers
        return object()


class _Itself:
    """An object that is like itself only; it is held, lest another takes its place in memory."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]  # it is compared only


class _Look:
    """One look at a value and at all that it holds, at each object once."""

    def __init__(self, saved: set[int]) -> None:
        self.saved = saved
        self.seen: dict[int, tuple[int, Any]] = {}
        """By `id`: the object's running number, and the object itself, so that nothing else gets its `id` meanwhile."""

    def __call__(self, value: Any, depth: int = 0) -> Any:
        """What is equal for as long as the value holds the same; an object like no other where nobody can tell."""
        if isinstance(value, SCALARS) or id(value) in self.saved:
            return value if isinstance(value, SCALARS) else None
        if id(value) in self.seen:
            return self.seen[id(value)][0]
        self.seen[id(value)] = len(self.seen), value
        if depth > DEEPEST or isinstance(value, Iterator):  # to look into an iterator is to use it up
            return object()
        return self._inside(value, depth + 1)

    def _inside(self, value: Any, depth: int) -> Any:
        if isinstance(value, bytes | bytearray):
            return hashlib.sha256(value).digest()
        if isinstance(value, Tensor):
            return _Itself(value), value.dtype, _numbers(value)
        if (held := _held(value)) is not None:
            return self._all(held, depth)
        return _Itself(value) if home_of(value) in NOT_LOOKED_INTO else self._as_pickled(value, depth)

    def _as_pickled(self, value: Any, depth: int) -> Any:
        """By what `pickle` would write: attributes, slots and items; functions, classes and locks have none of it."""
        try:
            told = value.__reduce_ex__(4)
        except Exception:  # whatever a class raises, it does not tell what it holds
            return _Itself(value)
        if isinstance(told, str):
            return _Itself(value)
        return self._all([list(each) if isinstance(each, Iterator) else each for each in told], depth)

    def _all(self, values: Iterable[Any], depth: int) -> list[Any]:
        return [self(each, depth) for each in values]
