"""The papers' printed numbers, and which of our runs stand beside which of them.

`paper_results.csv` holds one row a number, in our words for data, models and methods; an accuracy there is in percent.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

from oneshot_fl.reporting.runs import Run

COMMON = {
    "clients.batch_size": 128,
    "clients.optimizer.lr": 0.01,
    "clients.augmentation": "none",
    "clients.sam": None,
    "distill.generator_steps": 30,
    "distill.batch_size": 128,
    "generator.width": 64,
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "fedhydra": {**COMMON, "clients.epochs": 200, "distill.rounds": 200},
    "coboosting": {**COMMON, "clients.epochs": 300, "distill.rounds": 500},
}
"""What the papers state (FedHydra, Sec. 4.1.5; Co-Boosting, appendix) and their codes agree with."""

TITLES = {"fedhydra": "FedHydra", "coboosting": "Co-Boosting"}
SAME_DIRICHLET = ("dirichlet", "dirichlet_class_prior")
"""Both are printed as Dir(alpha); which one a paper means is known from its code."""
ENSEMBLES = {"fedens": "uniform", "dw_fedens": "size_weighted", "co_boosting": "boosted"}
SINGLE_CLIENTS = ("local", "client_m1", "client_m2", "client_m3", "client_m4", "client_m5")
OF_ANY_RUN = ("fedens", "dw_fedens", *SINGLE_CLIENTS)
"""Rows that do not depend on the method of the run that reports them."""
ALIASES = {("coboosting", "dense"): "dense_coboosting"}
"""What a paper's own code runs under a name."""
KNOBS = {
    "lambda1": ("objective.bn.weight", Fraction(1)),
    "lambda2": ("objective.adv.weight", Fraction(1)),
    "mu": ("ensemble.step", Fraction(1)),
    "epsilon": ("perturb.epsilon", Fraction(1, 2)),  # theirs is in units of images in [-1, 1]
}
"""A variant's symbol: the method's key and its unit."""
SWITCHES = {"GHS": "objective.hard_ce.power", "DHS": "perturb", "EE": "ensemble.step"}


@dataclass(frozen=True)
class Published:
    """One printed number with its setting; empty text where a table says nothing."""

    paper: str
    table: str
    metric: str
    data: str
    partition: str
    partition_value: str
    clients: str
    rounds: str
    client_model: str
    server_model: str
    method: str
    variant: str
    value: float
    std: float | None
    doubtful: bool

    @property
    def study(self) -> str:
        """The experiment that runs its table, `fedhydra/table1`."""
        return f"{self.paper}/table{self.table.removeprefix('T')}"

    @property
    def model(self) -> str:
        """The model that the number is about: the server's, or the client's where there is no server."""
        return self.server_model or self.client_model


@cache
def published() -> tuple[Published, ...]:
    """Every printed accuracy of the papers whose protocol we know, in the order of print; no averages over rows."""
    with (files("oneshot_fl.reporting") / "paper_results.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["paper"] in PROTOCOLS]
    return tuple(_published(row) for row in rows if row["partition_value"] != "avg")


def _published(row: dict[str, str]) -> Published:
    text = {key: value for key, value in row.items() if key not in ("value", "std", "doubtful")}
    return Published(
        **text,
        value=float(row["value"]),
        std=float(row["std"]) if row["std"] else None,
        doubtful=row["doubtful"] == "yes",
    )


def of_study(study: str) -> list[Published]:
    """The numbers of one table, `fedhydra/table1`; none where there is no such table."""
    return [cell for cell in published() if cell.study == study]


def fits(cell: Published, run: Run, *, by_model: bool) -> bool:
    """Whether a run stands beside a printed number: same data, partition, clients, method and variant.

    Under which protocol it ran is told by `deviations`. Architectures are asked for only where the table compares
    several in one setting (`by_model`), and of a single client, which is known by nothing else.
    """
    by_model = by_model or cell.method in SINGLE_CLIENTS
    return (
        (run.data, str(len(run.models["clients"]))) == (cell.data, cell.clients)
        and _same_split(cell, run)
        and int(cell.rounds) <= run.settings["communication_rounds"]
        and (cell.method in OF_ANY_RUN or _same_method(cell, run))
        and not (by_model and architecture(cell, run))
    )


def _same_method(cell: Published, run: Run) -> bool:
    return run.method == ALIASES.get((cell.paper, cell.method), cell.method) and _same_variant(cell, run)


def _same_split(cell: Published, run: Run) -> bool:
    names = SAME_DIRICHLET if cell.partition in SAME_DIRICHLET else (cell.partition,)
    return run.partition in names and run.spread == cell.partition_value


def _same_variant(cell: Published, run: Run) -> bool:
    """The method's keys have the variant's values, and nothing else in the method was changed."""
    if (wanted := _method_values(cell.variant)) is None:
        return False
    told = all(_is(run.setting(f"method.{key}"), value) for key, value in wanted.items())
    return told and all(any(key == own or key.startswith(f"{own}.") for own in wanted) for key in run.changed)


PRESENT, ABSENT = "present", "absent"


def _is(value: Any, wanted: float | str) -> bool:
    if wanted in (PRESENT, ABSENT):
        return bool(value) == (wanted == PRESENT)
    return math.isclose(value or 0, float(wanted), rel_tol=1e-2)


def _method_values(variant: str) -> dict[str, float | str] | None:
    """What a variant sets in the method; None where we cannot run it."""
    if _protocol_values(variant):
        return {}
    if variant.startswith("no_GHS") or (variant and set(variant.split("+")) <= set(SWITCHES)):
        return {key: PRESENT if name in variant.split("+") else ABSENT for name, key in SWITCHES.items()}
    pairs = [part.split("=") for part in variant.split()]
    if any(len(pair) != 2 or pair[0] not in KNOBS for pair in pairs):
        return None
    return {KNOBS[name][0]: float(Fraction(value) * KNOBS[name][1]) for name, value in pairs}


def _protocol_values(variant: str) -> dict[str, Any]:
    """What a variant sets outside the method."""
    if variant.startswith("local_epochs="):
        return {"clients.epochs": int(variant.removeprefix("local_epochs="))}
    return {"clients.sam": 0.05} if variant == "sam_local_training" else {}


def deviations(cell: Published, run: Run) -> tuple[str, ...]:
    """In what a run's protocol differs from the paper's, one phrase each."""
    wanted = {**PROTOCOLS[cell.paper], **_protocol_values(cell.variant), "partition.name": cell.partition}
    told = [
        f"{key}={run.setting(key)} instead of {value}" for key, value in wanted.items() if run.setting(key) != value
    ]
    held_out = [f"{run.setting('proxy.fraction'):.0%} of the training set held out"] if run.holds_out else []
    return (*told, *architecture(cell, run), *held_out)


def architecture(cell: Published, run: Run) -> tuple[str, ...]:
    """In what a run's models differ from the paper's; a number about one client asks for that client's only."""
    clients, server = run.models["clients"], run.models["server"]
    if cell.method == "local":
        return () if cell.client_model in clients else (f"no client has {cell.client_model}",)
    if cell.method.startswith("client_m"):
        compared = [("", clients[_client(cell)], cell.client_model)]
    else:
        compared = [("", "+".join(dict.fromkeys(clients)), cell.client_model), ("server ", server, cell.server_model)]
    return tuple(f"{who}{ours} instead of {theirs}" for who, ours, theirs in compared if theirs and ours != theirs)


def _client(cell: Published) -> int:
    return int(cell.method.removeprefix("client_m")) - 1


def measured(cell: Published, run: Run, *, which: str) -> float | None:
    """Our accuracy beside a printed number, as a fraction; None where the run is not done or does not report it."""
    if run.summary is None:
        return None
    exchange = run.summary["communication"][int(cell.rounds) - 1]
    if cell.metric == "ensemble_accuracy_percent":
        return exchange["ensembles"].get(ENSEMBLES[cell.method])
    if cell.method.startswith("client_m"):
        return exchange["clients"][_client(cell)]
    if cell.method == "local":
        return exchange["clients"][run.models["clients"].index(cell.client_model)]
    return exchange[f"accuracy_{which}"]


def compares_models(cells: Iterable[Published]) -> bool:
    """Whether a table has numbers that differ in nothing but the models."""
    seen: dict[tuple[str, ...], set[str]] = {}
    for cell in cells:
        key = (cell.metric, cell.data, cell.partition_value, cell.clients, cell.rounds, cell.method, cell.variant)
        seen.setdefault(key, set()).add(cell.model)
    return any(len(models) > 1 for models in seen.values())
