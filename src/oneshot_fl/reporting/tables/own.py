"""Tables of our own: one a protocol, a row a method, the ensembles and clients below.

Runs are compared only if everything but method and seed agrees. A method that was run with several settings of its
own gets a row for each.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from oneshot_fl.reporting.tables.estimates import Estimate, estimate, paired
from oneshot_fl.reporting.tables.format import Sheet, interval, percent
from oneshot_fl.reporting.tables.runs import Run

ORDER = (
    *("fedavg", "ot", "feddf", "dense", "dense_co_boosting", "f_dafl", "f_adi", "co_boosting", "fedhydra"),
    *("fedcvae_ens", "fedcvae_fedmho", "fedcvae_kd", "fedmho", "fedmho_md", "fedmho_sd"),
)
"""Rows in the order of the papers' tables; others follow as they come."""


def by_protocol(runs: Iterable[Run]) -> list[list[Run]]:
    """Groups of comparable runs in the order in which they first appear.

    Data sets of one name but other content differ in the summary's fingerprint; a run that never got to it joins the
    first group with its settings.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.status != "done"):
        conditions = _conditions(run)
        known = [key for key in groups if key[0] == conditions]
        data = run.summary["protocol"] if run.summary else known[0][1] if known else ""
        groups.setdefault((conditions, data), []).append(run)
    return list(groups.values())


def _conditions(run: Run) -> str:
    shared = {key: value for key, value in run.settings.items() if key not in ("method", "proxy")}
    held_out = run.setting("proxy") if run.holds_out else None
    return json.dumps([run.data, run.models, shared, held_out], sort_keys=True)


def protocol_sheet(runs: list[Run], *, which: str, against: str) -> Sheet:
    """One group's table.

    Args:
        which: `last` or `best` round of the server.
        against: the method (or label) from which the paired differences are taken.
    """
    labels = sorted({run.label for run in runs}, key=_rank)
    server = {label: _by_seed([run for run in runs if run.label == label], _server(which)) for label in labels}
    base = next((server[label] for label in labels if label == against), {})
    rows, records = [], []
    for label in labels:
        mine = [run for run in runs if run.label == label]
        difference = paired(server[label], base) if server[label] and label != against else None
        rows.append([label, *_row(server[label], difference), _troubles(mine)])
        records.append(_record(label, server[label], difference))
    for label, values in _references([run for run in runs if run.summary]).items():
        rows.append([label, *_row(values, None), ""])
        records.append(_record(label, values, None))
    header = ["", "seeds", f"server, {which} round", "95% CI", f"minus {against}, paired", "95% CI", "not done"]
    keep = [column for column in range(len(header)) if any(row[column] for row in rows)]
    return Sheet(
        describe(runs[0]), [header[column] for column in keep], [[row[column] for column in keep] for row in rows],
        ["Test accuracy in percent, mean ± standard deviation over seeds.", *_reasons(runs)], records,
    )  # fmt: skip


def _rank(label: str) -> tuple[int, str]:
    name = label.split(" ", maxsplit=1)[0]
    return (ORDER.index(name) if name in ORDER else len(ORDER), label)


def _server(which: str) -> Callable[[dict[str, Any]], float]:
    return lambda summary: summary["server"][f"accuracy_{which}"]


def _by_seed(runs: Iterable[Run], value: Callable[[dict[str, Any]], float]) -> dict[int, float]:
    return {run.seed: value(run.summary) for run in sorted(runs, key=lambda run: run.seed) if run.summary}


def _references(done: list[Run]) -> dict[str, dict[int, float]]:
    """Ensembles and single clients, which do not depend on the method but where it learns its ensemble."""
    names = dict.fromkeys(name for run in done for name in _reported(run))
    rows = {
        f"ensemble: {name}": _by_seed([run for run in done if name in _reported(run)], _ensemble(name))
        for name in names
    }
    tested = [run for run in done if _tested(run.summary)]
    return rows | ({"clients, mean": _by_seed(tested, _mean_client)} if tested else {})


def _reported(run: Run) -> list[str]:
    return list(run.summary["ensemble"]["rows"]) if run.summary else []


def _ensemble(name: str) -> Callable[[dict[str, Any]], float]:
    return lambda summary: summary["ensemble"]["rows"][name]


def _mean_client(summary: dict[str, Any]) -> float:
    accuracies = _tested(summary)
    return sum(accuracies) / len(accuracies)


def _tested(summary: dict[str, Any] | None) -> list[float]:
    """Accuracies of the clients that upload a classifier."""
    clients = summary["clients"] if summary else []
    return [client["accuracy"] for client in clients if client["accuracy"] is not None]


def _row(values: dict[int, float], difference: Estimate | None) -> list[str]:
    if not values:
        return ["", "–", "", "", ""]
    own = estimate(list(values.values()))
    seeds = ", ".join(map(str, values))
    gap = [percent(difference, signed=True), interval(difference, signed=True)] if difference else ["", ""]
    return [seeds, percent(own), interval(own), *gap]


def _record(label: str, values: dict[int, float], difference: Estimate | None) -> dict[str, Any]:
    own = estimate(list(values.values())) if values else None
    return {
        "row": label,
        "n": len(values),
        "mean": own and own.mean,
        "std": own and own.std,
        "ci95_half_width": own and own.half_width,
        "paired_difference": difference and difference.mean,
        "paired_ci95_half_width": difference and difference.half_width,
    }


def _troubles(runs: list[Run]) -> str:
    told = [f"{run.status} {run.seed}" for run in sorted(runs, key=lambda run: run.seed) if run.status != "done"]
    return ", ".join(told)


def _reasons(runs: list[Run]) -> list[str]:
    """Why runs failed, each reason once."""
    return [f"Failed: {error}." for error in dict.fromkeys(run.error for run in runs if run.error)]


def describe(run: Run) -> str:
    """Data, partition, architectures and budget of a group of runs in one line."""
    hidden = ("name", "min_samples", "retries")
    partition = {key: value for key, value in run.setting("partition").items() if key not in hidden}
    told = ", ".join(f"{key}={value}" for key, value in partition.items())
    models = "+".join(dict.fromkeys(run.models["clients"]))
    server = "" if {run.models["server"]} == set(run.models["clients"]) else f", server {run.models['server']}"
    taken = f", {run.setting('proxy.fraction'):.0%} held out" if run.holds_out else ""
    return (
        f"{run.data}, {run.partition}({told}){taken}, {models}{server}, budget {run.budget} "
        f"({run.setting('clients.epochs')} local epochs, {run.setting('distill.rounds')} rounds of "
        f"{run.setting('distill.generator_steps')} generator steps)"
    )
