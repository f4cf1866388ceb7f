"""A run as tables need it: what it compares, under which settings, and which of them are its method's own."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from oneshot_fl.config.method import sources_of
from oneshot_fl.reporting.tables.differences import Settings, at, canonical, flat, needs, told

Status = Literal["done", "failed", "interrupted", "unfinished"]
"""An unfinished run is still on, or was killed."""

SPREADS = {"dirichlet": "alpha", "dirichlet_class_prior": "alpha", "dirichlet_equal_chunks": "alpha"}
SPREADS |= {"classes_per_client": "classes", "lognormal": "sigma", "leave_one_domain_out": "held_out"}
"""The setting by which tables name a partition."""
ON_REQUEST = {"proxy": "proxy", "guidance": "stratify", "recitals": "recite"}
"""What only some methods need, and the group of settings that says how it is made."""

DATA_FOUND = "version found"
"""The setting of `data` that counts what one name stood for: with a blank, so that no part of a user's takes it."""


@dataclass(frozen=True)
class Run:
    """One run: what it compares under which settings (`reporting.record`) and, where it is done, its summary."""

    method: str
    changed: dict[str, Any]
    data: str
    budget: str
    study: str
    seed: int
    models: dict[str, Any]
    settings: Settings
    status: Status
    summary: dict[str, Any] | None = None
    error: str = ""
    folder: Path | None = None
    overrides: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    """The word of its command that says where else choices are read from."""
    complete: bool = False
    """Whether `settings` is the whole configuration; records of earlier versions hold some groups of it."""
    usual_rounds: int | None = None
    """What the budget has for methods that do not say how many rounds they need; earlier versions did not tell."""
    studies: frozenset[str] = frozenset()
    """Of other runs with the same settings and seed, which this one stands for."""
    written: float | None = None
    """When its result was, in seconds since 1970; collected lines of earlier versions do not tell."""

    def setting(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key of the settings, `distill.rounds`."""
        return at(self.settings, key, default)

    @property
    def all_studies(self) -> tuple[str, ...]:
        """Its own, then those of the runs that it stands for."""
        return (self.study, *sorted(self.studies - {self.study}))

    def belongs_to(self, study: str) -> bool:
        """Whether it is a run of that study, itself or through one that it stands for."""
        return study in self.all_studies

    @cached_property
    def flat(self) -> Settings:
        """The settings by dotted keys."""
        return flat(self.settings)

    @property
    def architectures(self) -> str:
        """The clients', each once, in their order."""
        return "+".join(dict.fromkeys(self.models["clients"]))

    @property
    def partition(self) -> str:
        """The partition's name."""
        return str(self.setting("partition.name"))

    @property
    def spread(self) -> str:
        """How uneven the partition is: alpha, classes, sigma or the held-out domain; empty for iid."""
        value = self.setting(f"partition.{SPREADS.get(self.partition, '')}")
        return "" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)

    @property
    def split(self) -> str:
        """The partition and how uneven it is: `dirichlet 0.1`."""
        return f"{self.partition} {self.spread}".strip()

    @property
    def holds_out(self) -> bool:
        """Whether part of the training set was taken away from all clients."""
        return self.setting("proxy.name") == "holdout"

    @cached_property
    def proxy(self) -> str:
        """The proxy images that the method distils on, `noise 2500`; empty where it uses none."""
        if "proxy" not in needs(self.setting("method")):
            return ""
        named = (self.setting(f"proxy.{key}") for key in ("name", "data", "fraction", "samples"))
        return " ".join(str(value) for value in named if value is not None)

    @property
    def label(self) -> str:
        """The method with what was changed in it, and its proxy images where they are what it distils on."""
        words = [told(key, value) for key, value in self.changed.items()]
        if self.proxy:
            words.append(f"proxy={self.proxy}")
        return f"{self.method} ({', '.join(words)})" if words else self.method

    @cached_property
    def used(self) -> frozenset[str]:
        """Of the groups that only some methods use those that this one does; all where a part of it is not here."""
        asked = needs(self.setting("method"), unknown=frozenset(ON_REQUEST))
        return frozenset(group for need, group in ON_REQUEST.items() if need in asked)

    @property
    def for_all(self) -> frozenset[str]:
        """Of the groups that only some methods use those that change what every method is given."""
        changing = {"proxy": self.holds_out, "recite": self.setting("hearing")}
        return frozenset(group for group, does in changing.items() if does)

    @cached_property
    def shared(self) -> Settings:
        """What must agree before methods are compared: all but the method and the groups that only it uses.

        Of the rounds that is the budget's number, also where a method takes another one by itself.
        """
        own = {"method", *ON_REQUEST.values()} - self.for_all
        shared = {key: value for key, value in self.settings.items() if key not in own}
        if self.own_rounds is not None:
            shared["distill"] = {**shared["distill"], "rounds": self.usual_rounds}
        return shared

    @property
    def own_rounds(self) -> int | None:
        """How many rounds the method takes where it is not the budget that says so."""
        rounds = self.setting("distill.rounds")
        return None if self.usual_rounds in (None, rounds) else rounds

    @cached_property
    def protocol(self) -> str:
        """A text that runs share which may be compared: all but the method, groups that only it uses, and the seed."""
        return canonical([self.data, self.models, self.shared])

    @cached_property
    def own(self) -> Settings:
        """The method's settings, its own number of rounds, and the groups that it uses and not every method does."""
        own = {key: self.settings[key] for key in ("method", *sorted(self.used)) if key in self.settings}
        return own if self.own_rounds is None else {**own, "distill": {"rounds": self.own_rounds}}

    @cached_property
    def row(self) -> str:
        """A text that runs of one method share whose own settings are the same, its sources in one order included."""
        return canonical([self.own, list(sources_of(self.setting("method") or {}))])


def used_in_exchange(summary: dict[str, Any], number: int) -> list[str]:
    """The names of the clients whose accuracies communication round `number` (from 0) tells, in their order.

    Summaries of earlier versions name none. Of the last round the clients themselves tell it; where one of them was
    turned away there, nobody knows who was in the rounds before, and this is empty.
    """
    exchanges = summary["communication"]
    if "used" in exchanges[number]:
        return list(exchanges[number]["used"])
    turned_away = any(client.get("quarantined") for client in summary["clients"])
    known = not turned_away or exchanges[number] is exchanges[-1]
    return [f"client {k}" for k in used_clients(summary)] if known else []


def used_clients(summary: dict[str, Any]) -> list[int]:
    """The numbers of the clients whose classifiers the server used last: none with decoders, nor any turned away."""
    return [k for k, client in enumerate(summary["clients"]) if client.get("accuracy") is not None]
