"""Settings side by side: a short title for each that tells only what differs, and a line on what all of them share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from oneshot_fl.reporting.tables.conditions import CONDITIONS, Fact
from oneshot_fl.reporting.tables.differences import Settings, below, canonical, differing, listed, without_unset
from oneshot_fl.reporting.tables.own import held_out, local_epochs, names_of, other_server, server_rounds, shared_of
from oneshot_fl.reporting.tables.run import SPREADS, Run


def _spread(partition: str, run: Run) -> str:
    return f"{SPREADS[partition]}={run.spread}" if run.partition == partition and run.spread else ""


FACTS = (
    Fact(lambda run: run.data, ("data",)),
    Fact(lambda run: run.partition, ("partition",)),
    *(Fact(partial(_spread, partition), (f"partition.{key}",)) for partition, key in SPREADS.items()),
    Fact(lambda run: f"{len(run.models['clients'])} clients", ("partition.clients", "of.clients")),
    Fact(held_out, ("proxy",)),
    Fact(lambda run: run.architectures, ("of", "models")),
    Fact(other_server, ("of.server", "models")),
    *CONDITIONS,
    Fact(lambda run: f"budget {run.budget}", ()),
)
"""In the order in which they are told."""


WITHOUT = "without"
"""The title of what has nothing of that by which the others are told, as an attack or images held out."""


@dataclass(frozen=True)
class Titles:
    """What groups of comparable runs are called beside each other."""

    each: list[str]
    """One for every group; of a group that is alone it is empty."""
    shared: str
    """What is the same in all of them."""
    untold: list[str]
    """Keys in which they differ without a title that says so, as their values go with what the titles do say."""


def titles_beside(groups: Sequence[list[Run]]) -> Titles:
    """The titles of at least one group of comparable runs."""
    first = [group[0] for group in groups]
    apart = [fact for fact in FACTS if len({fact.words(run) for run in first}) > 1]
    others = _not_covered(differing(shared_of(groups)), apart)
    told = _telling(others, [(run.data, run.budget) for run in first])
    own = [{key: _named(each[key]) for key in told} for each in others]
    short = [_title(run, apart, settings) for run, settings in zip(first, own, strict=True)]
    untold = [key for key in others[0] if key not in told and not key.endswith("_target_")]
    nothing = WITHOUT if len(groups) > 1 else ""
    return Titles([title or nothing for title in names_of(short, groups)], _shared(first), untold)


def _not_covered(differences: Sequence[Settings], apart: Sequence[Fact]) -> list[Settings]:
    covered = [key for fact in apart for key in fact.covers]
    return [{key: value for key, value in own.items() if not below(key, covered)} for own in differences]


def _telling(differences: Sequence[Settings], known: Sequence[tuple[str, str]]) -> list[str]:
    """Of keys that differ those whose values do not follow from data and budget, or from other such keys of the group.

    A budget sets many keys, and so does an attack: one word of them is enough.
    """
    told: list[str] = []
    for key in differences[0]:
        near = [other for other in told if other.split(".")[0] == key.split(".")[0]]
        causes = [
            canonical([*facts, *(own[other] for other in near)]) for facts, own in zip(known, differences, strict=True)
        ]
        if not _follows([canonical(own[key]) for own in differences], causes):
            told.append(key)
    return told


def _follows(values: Sequence[str], causes: Sequence[str]) -> bool:
    """Whether no two of the same cause have other values."""
    return len(set(zip(causes, values, strict=True))) == len(set(causes))


def _named(value: Any) -> Any:
    """A group that only some have (an attack, a gate) by its name: a column has no room for all of it."""
    return value.get("name", value) if isinstance(value, dict) else value


def _title(run: Run, facts: Sequence[Fact], own: Settings) -> str:
    return ", ".join(filter(None, [*(fact.words(run) for fact in facts), listed(without_unset(own))]))


def _shared(runs: Sequence[Run]) -> str:
    """The facts, and how long clients and server train, where they are the same everywhere."""
    known = [*(fact.words for fact in FACTS), local_epochs, server_rounds]
    same = [words(runs[0]) for words in known if len({words(run) for run in runs}) == 1]
    return ", ".join(filter(None, same))
