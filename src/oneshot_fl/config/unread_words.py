"""What a command sets and nothing reads: no mistake in a sweep, in which other jobs read it, but worth a note."""

from collections.abc import Iterable, Mapping
from typing import Any

from oneshot_fl.config.words import key_of

OF_STUDENTS = ("student_optimizer", "student_schedule")
"""Settings that all methods' students share (`distill`), unless a method has its own."""
OF_CLASSIFIERS = ("epochs", "batch_size", "optimizer", "augmentation", "sam")
"""Settings of local training that no conditional VAE shares (`clients`): it has `clients.cvae`."""


def unread_words(settings: Mapping[str, Any], words: Iterable[str]) -> list[str]:
    """A line for every word of a command that sets what nothing reads.

    Args:
        settings: the whole configuration, resolved.
        words: the command's overrides.
    """
    unread = {**_of_others_students(settings), **_of_classifiers(settings)}
    return [
        f"{word}: nothing reads it, as {why}"
        for word in words
        for key, why in unread.items()
        if f"{key_of(word).replace('/', '.')}.".startswith(f"{key}.")
    ]


def _of_others_students(settings: Mapping[str, Any]) -> dict[str, str]:
    """Keys that students share, where the method's has its own, and which that is."""
    method, shared = settings["method"], settings["distill"]
    own = [name for name in OF_STUDENTS if method.get(name) not in (None, shared[name])]
    return {f"distill.{name}": f"method={method['name']} has its own, method.{name}" for name in own}


def _of_classifiers(settings: Mapping[str, Any]) -> dict[str, str]:
    """Keys of classifiers' training, where no client trains one."""
    if {*(settings["clients"]["kinds"] or ())} != {"cvae"}:
        return {}
    return {f"clients.{name}": "all clients train conditional VAEs, by clients.cvae" for name in OF_CLASSIFIERS}
