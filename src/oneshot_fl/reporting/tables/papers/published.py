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

from oneshot_fl.reporting.tables.papers.stated import BY_METHOD, STATED, of_variant, protocol
from oneshot_fl.reporting.tables.runs import Run

TITLES = {"fedhydra": "FedHydra", "co_boosting": "Co-Boosting", "fedmho": "FedMHO"}
SAME_DIRICHLET = ("dirichlet", "dirichlet_class_prior")
"""Both are printed as Dir(alpha); which one a paper means is known from its code."""
ENSEMBLES = {"fedens": "uniform", "dw_fedens": "size_weighted", "co_boosting": "boosted"}
SINGLE_CLIENTS = ("local", "client_m1", "client_m2", "client_m3", "client_m4", "client_m5")
OF_ANY_RUN = ("fedens", "dw_fedens", *SINGLE_CLIENTS)
"""Rows that do not depend on the method of the run that reports them."""
ALIASES = {("co_boosting", "dense"): "dense_co_boosting", ("fedmho", "fedcvae"): "fedcvae_fedmho"}
"""What a paper, or its own code, means by a name."""
KNOBS = {
    "lambda1": ("method.objective.bn.weight", Fraction(1)),
    "lambda2": ("method.objective.adv.weight", Fraction(1)),
    "mu": ("method.ensemble.step", Fraction(1)),
    "epsilon": ("method.perturb.epsilon", Fraction(1, 2)),  # theirs is in units of images in [-1, 1]
    "beta1": ("method.student.kl.weight", Fraction(1, 2)),  # 1 and 1 are their default, lambda = 0.5
    "beta2": ("method.student.ce.weight", Fraction(1, 2)),
    "R_th": ("method.pool.nearest", Fraction(1)),
    "cvae_local_epochs": ("clients.cvae.epochs", Fraction(1)),
}
"""A variant's symbol: our key and its unit."""
SWITCHES = {"GHS": "method.objective.hard_ce.power", "DHS": "method.perturb", "EE": "method.ensemble.step"}
UNFILTERED = {"mnist": 4800, "fashion_mnist": 4800, "svhn": 4800, "emnist": 9600}
"""Images where FedMHO does not filter: as many as the filter leaves."""
TOLD_BY_MODELS = ("homogeneous_large_clients", "various_models")
"""Variants that are known by their models."""


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

    @property
    def knobs(self) -> str:
        """The variant, where it is not known by its models."""
        return "" if self.variant in TOLD_BY_MODELS else self.variant


@cache
def published() -> tuple[Published, ...]:
    """Every printed accuracy of the papers whose protocol we know, in the order of print; no averages over rows."""
    with (files("oneshot_fl.reporting.tables.papers") / "paper_results.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["paper"] in STATED]
    accuracies = [row for row in rows if row["metric"].endswith("accuracy_percent")]
    return tuple(_published(row) for row in accuracies if row["partition_value"] != "avg")


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
    several in one setting (`by_model`), of a single client, which is known by nothing else, and where another of the
    paper's numbers in the same setting was got with the run's.
    """
    return (
        (run.data, str(len(run.models["clients"]))) == (cell.data, cell.clients)
        and _same_split(cell, run)
        and int(cell.rounds) <= run.settings["communication_rounds"]
        and (cell.method in OF_ANY_RUN or _same_method(cell, run))
        and (not architecture(cell, run) or not (by_model or _is_by_model(cell, run)))
    )


def _is_by_model(cell: Published, run: Run) -> bool:
    return cell.method in SINGLE_CLIENTS or any(not architecture(other, run) for other in _alike(cell))


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
    return run.method == ALIASES.get((cell.paper, cell.method), cell.method) and _same_variant(cell, run)


def _same_split(cell: Published, run: Run) -> bool:
    names = SAME_DIRICHLET if cell.partition in SAME_DIRICHLET else (cell.partition,)
    return run.partition in names and run.spread == cell.partition_value


def _same_variant(cell: Published, run: Run) -> bool:
    """The variant's keys have its values, and nothing else in the method was changed but what deviations tell of."""
    if (wanted := _asked(cell)) is None:
        return False
    told = all(_is(run.setting(key), value) for key, value in wanted.items())
    changed = [f"method.{key}" for key in run.changed]
    known = {*wanted, *_stated(cell)}
    return told and all(any(key == own or key.startswith(f"{own}.") for own in known) for key in changed)


PRESENT, ABSENT = "present", "absent"


def _is(value: Any, wanted: float | str) -> bool:
    if wanted in (PRESENT, ABSENT):
        return bool(value) == (wanted == PRESENT)
    return math.isclose(value or 0, float(wanted), rel_tol=1e-2)


def _asked(cell: Published) -> dict[str, float | str] | None:
    """The values that a variant asks for; None where we cannot run it."""
    variant = cell.variant
    if of_variant(variant) is not None:
        return {}
    if variant == "without_kmeans":
        return {"method.pool.nearest": 1.0, "method.source.samples": UNFILTERED[cell.data]}
    if variant.startswith("no_GHS") or set(variant.split("+")) <= set(SWITCHES):
        return {key: PRESENT if name in variant.split("+") else ABSENT for name, key in SWITCHES.items()}
    pairs = [part.split("=") for part in variant.split()]
    if any(len(pair) != 2 or pair[0] not in KNOBS or pair[1] == "learnable" for pair in pairs):
        return None
    return {KNOBS[name][0]: float(Fraction(value) * KNOBS[name][1]) for name, value in pairs}


def deviations(cell: Published, run: Run) -> tuple[str, ...]:
    """In what a run differs from what the paper states of all its runs, one phrase each."""
    own = BY_METHOD.get(cell.paper, frozenset())
    told = _differing(run, {key: value for key, value in _stated(cell).items() if key not in own})
    held_out = [f"{run.setting('proxy.fraction'):.0%} of the training set held out"] if run.holds_out else []
    return (*told, *(() if own else architecture(cell, run)), *held_out)


def own_deviations(cell: Published, run: Run) -> tuple[str, ...]:
    """In what a run differs from what the paper states of this method on this data set; nothing where it does not."""
    if (own := BY_METHOD.get(cell.paper)) is None:
        return ()
    told = _differing(run, {key: value for key, value in _stated(cell).items() if key in own})
    return (*told, *architecture(cell, run))


def _stated(cell: Published) -> dict[str, Any]:
    """The protocol of a printed number; where its variant asks for another value, that one."""
    stated = {**protocol(cell.paper, cell.method, cell.data, cell.variant), "partition.name": cell.partition}
    return {**stated, **{key: value for key, value in (_asked(cell) or {}).items() if key in stated}}


def _differing(run: Run, wanted: dict[str, Any]) -> list[str]:
    return [
        f"{key}={run.setting(key)} instead of {value}" for key, value in wanted.items() if run.setting(key) != value
    ]


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
