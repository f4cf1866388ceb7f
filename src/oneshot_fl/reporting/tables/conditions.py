"""What else a group of runs was done under, in words: nothing of it where all is as it ordinarily is."""

from collections.abc import Callable
from typing import Any, NamedTuple

from oneshot_fl.reporting.tables.differences import at
from oneshot_fl.reporting.tables.run import Run


class Condition(NamedTuple):
    """A setting that a reader of a table has to know of."""

    key: str
    words: Callable[[Any], str]
    """Of its value; empty where that is the ordinary one."""


def _chosen(group: str) -> Condition:
    """A group of which ordinarily nothing is chosen; one of a user's own may have no name, but a class has."""
    return Condition(group, lambda part: f"{group} {part.get('name') or _class(part['_target_'])}" if part else "")


def _class(target: str) -> str:
    return target.rpartition(".")[2]


CONDITIONS = (
    Condition("development", lambda on: "tested on development images" if on else ""),
    Condition(
        "communication_rounds", lambda rounds: f"{rounds} communication rounds" if rounds not in (None, 1) else ""
    ),
    Condition("clients.epsilon", lambda epsilon: f"private clients, epsilon {epsilon:g}" if epsilon else ""),
    Condition("clients.sam", lambda radius: f"sharpness-aware clients, radius {radius:g}" if radius else ""),
    _chosen("attack"),
    _chosen("gate"),
    _chosen("hearing"),
)
"""In the order in which they are told."""


def words_of(condition: Condition, run: Run) -> str:
    """Of what all runs beside it share too."""
    return condition.words(at(run.shared, condition.key))


def conditions(run: Run) -> list[str]:
    """Those that are not the ordinary ones."""
    return [words for condition in CONDITIONS if (words := words_of(condition, run))]
