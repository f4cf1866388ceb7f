"""Which of our runs stand beside a printed number, and in what they are not the paper's protocol.

The protocol is that of the experiment of the number's table, composed for its data set and method: every key of it is
compared, but for what the table varies, what papers do not state (`UNSTATED`), and what the run does not use.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from oneshot_fl.config.compose import choices
from oneshot_fl.config.record import SERVER
from oneshot_fl.reporting.tables.differences import aligned, at, below, flat, same
from oneshot_fl.reporting.tables.papers.expected import Expected, architecture_settings, expected
from oneshot_fl.reporting.tables.papers.paper import grants
from oneshot_fl.reporting.tables.papers.published import (
    AVERAGE,
    FLOPS,
    OF_ANY_RUN,
    PAPERS,
    SINGLE_CLIENTS,
    Published,
    client_of,
    client_with,
    published,
)
from oneshot_fl.reporting.tables.run import DATA_FOUND, SPREADS, Run

SAME_DIRICHLET = ("dirichlet", "dirichlet_class_prior", "dirichlet_equal_chunks")
"""All are printed as Dir(alpha); which one a paper means is known from its code."""
VARIED = (
    *("partition.alpha", "partition.classes", "partition.sigma", "partition.held_out", "partition.clients"),
    *("data.held_out", "communication_rounds"),
)
"""What tables vary; a run stands beside a number only where it agrees."""
UNSTATED = (
    *("data.root", f"data.{DATA_FOUND}", "trainer"),
    *("distill.bank", "distill.clients_at_once", "stratify.classes_at_once"),
)
"""What no paper states: on which machine, and how the same is computed."""
IMAGES = ("proxy",)
"""Compared in the heads of columns: which images methods distil on that use proxy images."""
TRAINING = ("method.student_optimizer", "method.student_schedule")
"""How a method's student is trained, which makes it no other method."""


def fits(cell: Published, run: Run, *, by_model: bool) -> bool:
    """Whether a run stands beside a printed number: same data, partition, clients, method and variant.

    How else it ran is a matter of `deviations`. Models are asked for only where the table compares several in one
    setting (`by_model`), of a single client, which is known by nothing else, and where another of the paper's numbers
    in the same setting was got with the run's.
    """
    if run.data != cell.data:
        return False
    if cell.metric == FLOPS:
        return run.summary is not None and client_with(cell.client_model, run) is not None
    return (
        str(len(run.models["clients"])) == cell.clients
        and _same_split(cell, run)
        and int(cell.rounds) <= run.setting("communication_rounds", 1)
        and (cell.method in OF_ANY_RUN or _same_method(cell, run))
        and (not other_models(cell, run) or not (by_model or _is_by_model(cell, run)))
    )


def _is_by_model(cell: Published, run: Run) -> bool:
    return cell.method in SINGLE_CLIENTS or any(not other_models(other, run) for other in _alike(cell))


def _alike(cell: Published) -> tuple[Published, ...]:
    """The paper's numbers in the same setting, whatever the models: this one, and those of other tables."""
    return _by_setting()[_setting(cell)]


@cache
def _by_setting() -> dict[tuple[str, ...], tuple[Published, ...]]:
    found: dict[tuple[str, ...], tuple[Published, ...]] = {}
    for cell in published():
        found[_setting(cell)] = (*found.get(_setting(cell), ()), cell)
    return found


def _setting(cell: Published) -> tuple[str, ...]:
    names = ("paper", "metric", "data", "partition", "partition_value", "clients", "rounds", "method")
    return tuple(getattr(cell, name) for name in names)


def _same_method(cell: Published, run: Run) -> bool:
    """Same method and variant; whatever else was changed in it is the protocol's or told by `deviations`."""
    wanted = cell.asked
    if run.method != cell.our_method or wanted is None:
        return False
    if not all(grants(run.setting(key), value) for key, value in wanted.items()):
        return False
    changed = {f"method.{key}": value for key, value in run.changed.items()}
    return all(below(key, (*wanted, *TRAINING)) or _is_protocol(cell, key, value) for key, value in changed.items())


def _is_protocol(cell: Published, key: str, value: Any) -> bool:
    wanted = expected(cell.study, cell.data, cell.our_method)
    theirs = {own: value for own, value in wanted.values.items() if below(own, (key,))}
    ours = flat({key: value})
    return theirs.keys() == ours.keys() and all(same(ours[own], theirs[own]) for own in ours)


def _same_split(cell: Published, run: Run) -> bool:
    names = SAME_DIRICHLET if cell.partition in SAME_DIRICHLET else (cell.partition,)
    return run.partition in names and cell.partition_value in (run.spread, AVERAGE)


def other_models(cell: Published, run: Run) -> dict[str, tuple[str, str]]:
    """Where a run's models are not the paper's: `clients` or `server` with ours and theirs.

    A number about one client asks for that client's only.
    """
    clients, server = run.models["clients"], run.models["server"]
    if cell.metric == FLOPS:
        return {}
    if cell.method == "local":
        return {} if cell.client_model in clients else {"clients": (f"no client with {cell.client_model}", "")}
    if cell.method.startswith("client_m"):
        found = {"clients": (clients[client_of(cell)], cell.client_model)}
    else:
        found = {"clients": (run.architectures, cell.client_model), "server": (server, cell.server_model)}
    return {who: pair for who, pair in found.items() if pair[1] and pair[0] != pair[1]}


MISSING: Any = object()


@dataclass(frozen=True)
class Difference:
    """A key in which a run is not the protocol of a printed number."""

    key: str
    ours: Any
    theirs: Any
    stated: bool = True
    """Whether papers state it."""

    def __hash__(self) -> int:
        return hash(str(self))  # values may be lists

    def __str__(self) -> str:
        if self.key in ("models.clients", "models.server"):
            server = "server " if self.key == "models.server" else ""
            return f"{server}{self.ours}" + (f" instead of {self.theirs}" if self.theirs else "")
        if self.key == "proxy.fraction":
            return f"{self.ours:.0%} of the training set held out"
        return f"{self.key}={self.ours} instead of {self.theirs}"


def deviations(cell: Published, run: Run) -> tuple[str, ...]:
    """In what a run is not the protocol of a printed number, one phrase each."""
    return tuple(str(difference) for difference in differences(cell, run) if difference.stated)


def differences(cell: Published, run: Run) -> tuple[Difference, ...]:
    """All keys in which a run is not the protocol of a printed number that it stands beside."""
    if cell.metric == FLOPS:
        return ()
    wanted = expected(cell.study, cell.data, _composed_with(cell, run))
    skipped = (*_varied(run), *IMAGES, *(cell.asked or {}), *_unused(cell, run), "models")
    found = [
        Difference(key, ours, theirs, stated=not below(key, UNSTATED))
        for key, ours, theirs in _side_by_side(run, wanted)
        if not below(key, skipped) and not same(ours, theirs)
    ]
    models = [Difference(f"models.{who}", *pair) for who, pair in other_models(cell, run).items()]
    return (
        *_without_copies(_by_name(found), run, wanted),
        *_architectures(run),
        *models,
        *_held_out(cell, run, wanted),
    )


def _varied(run: Run) -> tuple[str, ...]:
    """Of how uneven a split is the one key that its tables vary: lognormal sizes have a Dir(alpha) besides."""
    others = {f"partition.{spread}" for kind, spread in SPREADS.items() if spread != SPREADS.get(run.partition)}
    return tuple(key for key in VARIED if key not in others)


def _side_by_side(run: Run, wanted: Expected) -> Iterator[tuple[str, Any, Any]]:
    """Keys with our value and theirs; of a record that holds some groups only, the keys that it has."""
    for key in aligned(wanted.values, run.flat):
        ours, theirs = at(run.settings, key, MISSING), at(wanted.settings, key, MISSING)
        known = run.complete or not (ours is MISSING or theirs is MISSING)
        if known and not key.endswith("_partial_"):
            yield key, None if ours is MISSING else ours, None if theirs is MISSING else theirs


def _by_name(found: list[Difference]) -> list[Difference]:
    """Where another choice of a group was made, its name alone and what both choices have."""
    renamed = {each.key.removesuffix("name") for each in found if each.key.endswith(".name")}
    return [
        each
        for each in found
        if each.key.endswith(".name")
        or not each.key.startswith(tuple(renamed) or ("\n",))
        or (each.ours is not None and each.theirs is not None and not each.key.endswith("_target_"))
    ]


def _without_copies(found: list[Difference], run: Run, wanted: Expected) -> list[Difference]:
    """Without the method's keys that take the value of another key, which is told already."""
    return [each for each in found if not _is_copy(each.key, run, wanted)]


def _is_copy(key: str, run: Run, wanted: Expected) -> bool:
    copied = next((own for own in wanted.copies if below(key, (own,))), None)
    if copied is None:
        return False
    source = wanted.copies[copied] + key.removeprefix(copied)
    return source in run.flat and same(run.flat.get(key), run.flat[source])


def _architectures(run: Run) -> list[Difference]:
    """Settings of architectures that are not those of their names."""
    return [
        Difference(f"models.{name}.{key}", value, usual[key])
        for name, settings in run.setting("models", {}).items()
        for usual in [architecture_settings(name.removeprefix(SERVER))]
        for key, value in flat(settings).items()
        if key in usual and not same(value, usual[key])
    ]


def _held_out(cell: Published, run: Run, wanted: Expected) -> list[Difference]:
    """What was taken away from the clients, unless the paper does that."""
    stated = {PAPERS[cell.paper].holdout if proxy_of(cell, run) else None, wanted.values.get("proxy.fraction")}
    fraction = run.setting("proxy.fraction")
    return [Difference("proxy.fraction", fraction, None)] if run.holds_out and fraction not in stated else []


def proxy_of(cell: Published, run: Run) -> str:
    """The proxy images that a number hangs on; clients and their ensembles know nothing of a method's."""
    return "" if cell.method in OF_ANY_RUN else run.proxy


def uses(cell: Published, run: Run, key: str) -> bool:
    """Whether a printed number depends on a key."""
    if key == "models.server":
        return cell.method not in OF_ANY_RUN
    return not below(key, _unused(cell, run))


def _composed_with(cell: Published, run: Run) -> str:
    """The method that the table's experiment is composed with; rows of any run may be of a user's own method."""
    if cell.method not in OF_ANY_RUN:
        return cell.our_method
    return run.method if run.method in choices("method") else "fedavg"


def _unused(cell: Published, run: Run) -> tuple[str, ...]:
    """Keys that change nothing in what a run measures of a printed number."""
    source, kinds = run.setting("method.source"), run.setting("clients.kinds") or ["classifier"]
    on_clients = cell.method in OF_ANY_RUN or source is None
    guided = "stratify" in run.used and not on_clients
    generates = any("generator" in key.split(".") for key in flat({"": source or {}})) and not on_clients
    recites = (run.used | run.for_all) >= {"recite"} and not on_clients
    classifiers = tuple(f"clients.{key}" for key in run.setting("clients", {}) if key not in ("cvae", "kinds"))
    return (
        *(("method", "distill") if cell.method in OF_ANY_RUN else ("distill",) if on_clients else ()),
        *(() if generates else ("distill.generator_steps", "distill.generator_optimizer")),
        *(() if generates or guided else ("generator",)),
        *(() if guided else ("stratify",)),
        *(() if recites else ("recite",)),
        *(() if "cvae" in kinds else ("clients.cvae",)),
        *(() if "classifier" in kinds else classifiers),
    )
