"""The papers' printed numbers, and which of our runs stand beside which of them.

`paper_results.csv` holds one row for every number, in our words for data, models and methods; an accuracy there is in
percent.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

from oneshot_fl.reporting.tables.papers import co_boosting, fedhydra, fedmho
from oneshot_fl.reporting.tables.papers.paper import OF_THE_TABLE, Asked, Paper
from oneshot_fl.reporting.tables.run import Run, used_in_exchange

PAPERS: dict[str, Paper] = {paper.name: paper for paper in (fedhydra.PAPER, co_boosting.PAPER, fedmho.PAPER)}
ENSEMBLES = {"fedens": "uniform", "dw_fedens": "size_weighted", "co_boosting": "boosted"}
SINGLE_CLIENTS = ("local", "client_m1", "client_m2", "client_m3", "client_m4", "client_m5")
OF_ANY_RUN = ("fedens", "dw_fedens", *SINGLE_CLIENTS)
"""Rows that do not depend on the method of the run that reports them."""
KNOWN_BY_MODELS = ("homogeneous_large_clients", "various_models")
"""Variants that are known by their models."""
AVERAGE = "avg"
"""The split of a row that is the mean over the others of its table, `AVG` over domains."""
FLOPS = "mflops"
"""Of a model, which stands as method; all other metrics are accuracies."""


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

    @cached_property
    def study(self) -> str:
        """The experiment that runs its table, `fedhydra/table1`."""
        return f"{self.paper}/table{self.table.removeprefix('T')}"

    @property
    def model(self) -> str:
        """The model that the number is about: the server's, or the client's where there is no server."""
        return self.server_model or self.client_model

    @property
    def our_method(self) -> str:
        """Our name of its method."""
        return PAPERS[self.paper].methods.get(self.method, self.method)

    @property
    def partitions(self) -> tuple[str, str]:
        """What its partition is called in print, and what its paper, or the code of it, means by that."""
        return self.partition, PAPERS[self.paper].partitions.get(self.partition, self.partition)

    @cached_property
    def asked(self) -> Asked | None:
        """The values that its variant asks for besides the table's own experiment; None where we cannot run it."""
        return {} if self.variant in OF_THE_TABLE else PAPERS[self.paper].asked(self.variant, self.data)

    @property
    def shown_variant(self) -> str:
        """The variant, where it is not known by its models."""
        return "" if self.variant in KNOWN_BY_MODELS or self.metric == FLOPS else self.variant


@cache
def published() -> tuple[Published, ...]:
    """Every printed accuracy of the papers whose protocol we know, and FedMHO's MFLOPs, in the order of print."""
    with (files("oneshot_fl.reporting.tables.papers") / "paper_results.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["paper"] in PAPERS]
    return tuple(
        _published(row) for row in rows if row["metric"] == FLOPS or row["metric"].endswith("accuracy_percent")
    )


def _published(row: dict[str, str]) -> Published:
    text = {key: value for key, value in row.items() if key not in ("value", "std", "doubtful")}
    if text["metric"] == FLOPS:
        text["method"] = text["client_model"]
    return Published(
        **text,
        value=float(row["value"]),
        std=float(row["std"]) if row["std"] else None,
        doubtful=row["doubtful"] == "yes",
    )


@cache
def of_study(study: str) -> tuple[Published, ...]:
    """The numbers of one table, `fedhydra/table1`; none where there is no such table."""
    return tuple(cell for cell in published() if cell.study == study)


def client_of(cell: Published) -> int:
    """Which client a row of FedHydra's single clients is about."""
    return int(cell.method.removeprefix("client_m")) - 1


def client_with(model: str, run: Run) -> int | None:
    """The first client with a model."""
    return next((k for k, name in enumerate(run.models["clients"]) if name == model), None)


def measured(cell: Published, run: Run, *, which: str) -> float | None:
    """Our number beside a printed one: accuracies as fractions, multiply-adds in millions.

    None where the run is not done or does not report it.
    """
    if run.summary is None:
        return None
    if cell.metric == FLOPS:
        k = client_with(cell.client_model, run)
        return None if k is None else run.summary["clients"][k]["macs"] / 1e6
    number = int(cell.rounds) - 1
    exchange = run.summary["communication"][number]
    if cell.metric == "ensemble_accuracy_percent":
        return exchange["ensembles"].get(ENSEMBLES[cell.method])
    if cell.method in SINGLE_CLIENTS:
        k = client_with(cell.client_model, run) if cell.method == "local" else client_of(cell)
        return _of_client(k, used_in_exchange(run.summary, number), exchange["clients"])
    return exchange[f"accuracy_{which}"]


def _of_client(k: int | None, used: Sequence[str], accuracies: Sequence[float]) -> float | None:
    """Client k's accuracy, of which an exchange tells those that were used; None of another."""
    name = f"client {k}"
    return accuracies[used.index(name)] if name in used and len(used) == len(accuracies) else None


def compares_models(cells: Iterable[Published]) -> bool:
    """Whether a table has numbers that differ in nothing but the models."""
    seen: dict[tuple[str, ...], set[str]] = {}
    for cell in cells:
        key = (cell.metric, cell.data, cell.partition_value, cell.clients, cell.rounds, cell.method, cell.variant)
        seen.setdefault(key, set()).add(cell.model)
    return any(len(models) > 1 for models in seen.values())
