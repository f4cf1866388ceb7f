"""Parts that are chosen but not made yet, and how keys and records tell of them."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from oneshot_fl.code import PACKAGE, digest, module_of
from oneshot_fl.disk import sha256_of
from oneshot_fl.errors import OneshotError

T = TypeVar("T")

NEEDS_OF_SERVER = frozenset({"classifiers", "decoders", "guidance", "label_counts", "proxy", "recitals", "student"})
"""What a part may need of the server that it is made with."""
NEEDS_OF_RUN = frozenset({"chain", "clients_start", "own_decoder", "same_architecture", "teacher"})
"""What a part may need of how clients and student are built and begin, and of the method: that it has an ensemble."""
NEEDS_OF_VOTES = frozenset({"features", "labels"})
"""What an ensemble may also need, of the votes that it is asked with."""
NEEDS_OF_POOL = frozenset({"earlier_rounds", "kept_answers"})
"""And of the pool: images of earlier rounds, to learn from; to be asked about images as the pool keeps them only."""
NEEDS_OF_VIEW = frozenset({"features", "start", "statistics", "teacher"})
"""What a loss term may need, of the view that it is called with."""


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


def needs_of_start(init: Any, of_terms: frozenset[str]) -> frozenset[str]:
    """What the student's start needs where a loss term holds the student to it: all that it is made of.

    Without those it would be random weights, which are nothing to be held to.

    Args:
        init: what says how the student begins; it may name in `uses` what it can do without.
        of_terms: what the student's loss terms need.
    """
    return getattr(init, "uses", frozenset()) if "start" in of_terms else frozenset()


def described(value: Any) -> Any:
    """Dataclasses, recipes and containers as plain containers, for a key: every field counts.

    Of parts with names the order counts as well: sources draw one after the other, and terms are summed in it.
    """
    if isinstance(value, Recipe):
        return described(value.settings)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: described(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        told = {str(key): described(inner) for key, inner in value.items()}
        parts = bool(value) and all(isinstance(inner, Recipe) for inner in value.values())
        return [list(named) for named in told.items()] if parts else told
    if isinstance(value, list | tuple):
        return [described(inner) for inner in value]
    return value


FETCHING = {"get_class", "get_method", "get_object", "get_static_method"}
"""Functions of `hydra.utils` that give what their `path` names."""


def targets(settings: Any) -> list[str]:
    """Every `_target_` in plain nested settings, in order, once."""
    return list(dict.fromkeys(target for _, target in targets_at(settings)))


def targets_at(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every `_target_` in plain nested settings, in order, each with the dotted key of the part that it is of.

    Where it is one of Hydra's that only fetch code, what it fetches follows.
    """
    if isinstance(node, list | tuple):
        node = dict(enumerate(node))
    if not isinstance(node, Mapping):
        return
    if isinstance(target := node.get("_target_"), str):
        yield key, target
        if target.startswith("hydra.") and target.rpartition(".")[2] in FETCHING and isinstance(node.get("path"), str):
            yield key, node["path"]
    for name, inner in node.items():
        yield from targets_at(inner, f"{key}.{name}".lstrip("."))


def digest_of(phase: str, inputs: Any, *others: str) -> str:
    """A digest of the code that a phase's result depends on: its own module's, and that of every `_target_` inside.

    The contents of files that a user's own part names in its settings count as code does: it may read them.

    Args:
        others: modules that do the work and that neither the phase's module nor the inputs name.

    Raises:
        OneshotError: such a file cannot be read.
    """
    code = digest([*_modules(phase, inputs), *others])
    if not (contents := {name: _contents(name) for name in sorted(set(_own_files(inputs, own=False)))}):
        return code
    return hashlib.sha256(json.dumps([code, contents]).encode()).hexdigest()[: len(code)]


def sources_of(phase: str, inputs: Any) -> str:
    """The same without the versions of what is installed, in which machines may differ, and without files.

    A part may write a file that its settings name.
    """
    return digest(_modules(phase, inputs), versions=False)


def _modules(phase: str, inputs: Any) -> list[str]:
    """A phase's module and those of every `_target_` inside."""
    return [phase, *map(module_of, targets(inputs))]


def is_ours(target: str) -> bool:
    """Whether a `_target_` is of this package: what its parts read from files is known."""
    return target.startswith(f"{PACKAGE}.")


def made_of_ours(part: object) -> bool:
    """Whether a part's class is of this package, and none of a user's own."""
    return is_ours(type(part).__module__)


def home_of(part: object) -> str:
    """The package that a part's class is of."""
    return type(part).__module__.partition(".")[0]


def _own_files(node: Any, *, own: bool) -> Iterator[str]:
    """Files that settings name below a `_target_` that is not ours."""
    if isinstance(node, Mapping):
        target = node.get("_target_")
        own = own or (isinstance(target, str) and not is_ours(target))
        node = list(node.values())
    if isinstance(node, str) and own and os.path.isfile(os.path.expanduser(node)):
        yield node
    for inner in node if isinstance(node, list | tuple) else ():
        yield from _own_files(inner, own=own)


def _contents(name: str) -> str:
    path = os.path.expanduser(name)
    try:
        status = os.stat(path)
        return _sha256(os.path.abspath(path), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise OneshotError(f"{name}: cannot be read ({error.strerror}); a part's settings name this file") from error


@lru_cache(maxsize=256)  # every client's key asks again
def _sha256(path: str, _size: int, _changed: int) -> str:
    return sha256_of(Path(path))
