"""What else a group of runs was done under, in words: nothing of it where all is as it ordinarily is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oneshot_fl.reporting.tables.differences import at
from oneshot_fl.reporting.tables.run import Run


@dataclass(frozen=True)
class Fact:
    """What is told of a setting in a word or two."""

    words: Callable[[Run], str]
    """Empty where there is nothing to tell."""
    covers: tuple[str, ...]
    """Keys (`own.shared_of`), with all below them, that nobody needs to be told where this differs."""


def _of(key: str, words: Callable[[Any], str]) -> Fact:
    """Of a setting that all runs beside it share too, by its value; empty where that is the ordinary one."""
    return Fact(lambda run: words(at(run.shared, key)), (key,))


def _chosen(group: str) -> Fact:
    """A group of which ordinarily nothing is chosen; one of a user's own may have no name, but a class has."""
    return _of(group, lambda part: f"{group} {part.get('name') or _class(part['_target_'])}" if part else "")


def _class(target: str) -> str:
    return target.rpartition(".")[2]


CONDITIONS = (
    _of("development", lambda on: "tested on development images" if on else ""),
    _of("communication_rounds", lambda rounds: f"{rounds} communication rounds" if rounds not in (None, 1) else ""),
    _of("clients.epsilon", lambda epsilon: f"private clients, epsilon {epsilon:g}" if epsilon else ""),
    _of("clients.sam", lambda radius: f"sharpness-aware clients, radius {radius:g}" if radius else ""),
    _chosen("attack"),
    _chosen("gate"),
    _chosen("hearing"),
)
"""In the order in which they are told."""


def conditions(run: Run) -> list[str]:
    """Those that are not the ordinary ones."""
    return [words for fact in CONDITIONS if (words := fact.words(run))]
