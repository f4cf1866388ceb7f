"""What a command sets and nothing reads: no mistake in a sweep, in which other jobs read it, but worth a note."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.clients import client_nodes, kinds
from oneshot_fl.config.words import key_of, values_of
from oneshot_fl.fits import shown

OF_STUDENTS = ("student_optimizer", "student_schedule")
"""Settings that all methods' students share (`distill`), unless a method has its own."""
OF_CLASSIFIERS = ("epochs", "batch_size", "optimizer", "augmentation", "sam")
"""Settings of local training that no conditional VAE shares (`clients`): it has `clients.cvae`."""


def unread_words(settings: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    """A line for every word of a command that sets what nothing reads, or less than it says.

    Args:
        settings: the whole configuration, resolved.
        words: the command's overrides.
    """
    cfg = DictConfig(settings)
    unread = {**_of_others_students(settings), **_of_classifiers(cfg), **_of_others_rates(cfg)}
    lines = [
        f"{word}: nothing reads it, as {why}"
        for word in words
        for key, why in unread.items()
        if f"{key_of(word).replace('/', '.')}.".startswith(f"{key}.")
    ]
    return [*lines, *_merged(settings, words)]


def _of_others_students(settings: Mapping[str, Any]) -> dict[str, str]:
    """Keys that students share, where the method's has its own, and which that is."""
    method, shared = settings["method"], settings["distill"]
    own = [name for name in OF_STUDENTS if method.get(name) not in (None, shared[name])]
    return {f"distill.{name}": f"method={method['name']} has its own, method.{name}" for name in own}


def _of_classifiers(cfg: DictConfig) -> dict[str, str]:
    """Keys of classifiers' training, where no client trains one."""
    if "classifier" in kinds(cfg):
        return {}
    return {f"clients.{name}": "all clients train conditional VAEs, by clients.cvae" for name in OF_CLASSIFIERS}


def _of_others_rates(cfg: DictConfig) -> dict[str, str]:
    """Learning rates of architectures that no client has."""
    rates = cfg.clients.lr_of or {}
    own = {node.name for node in client_nodes(cfg)} if rates else set()
    return {f"clients.lr_of.{name}": f"no client trains {name}" for name in rates if name not in own}


def _merged(settings: Mapping[str, Any], words: Sequence[str]) -> Iterator[str]:
    """Shares of kinds that stand beside those of the chosen files, where a command may mean them to be all."""
    there = settings["clients"]["kinds"]
    for word in words:
        given = values_of(word) if key_of(word) == "clients.kinds" else None
        if given and isinstance(given[1][-1], dict) and isinstance(there, dict) and {*given[1][-1]} != {*there}:
            alone = shlex.join(["~clients.kinds", f"+{word.lstrip('+')}"])
            yield f"{word}: stands beside what is chosen already, {shown(there)}; for these shares alone write {alone}"
