"""The cost ledger of `summary.json`: what every phase of a run took, whoever made its results."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

from oneshot_fl.artifacts import Spent
from oneshot_fl.ledger import Cost, total
from oneshot_fl.models.classifiers import upload_bytes
from oneshot_fl.models.cost import multiply_accumulates
from oneshot_fl.reporting.run_result import RunResult, Served

Entry = dict[str, Any]
"""The fields of a `Cost`, `upload_bytes`, `download_bytes`, and of how many `results` how many were `from_store`."""


def ledger_of_run(results: list[RunResult], *, prepare: Cost, evaluate: Cost) -> dict[str, Entry]:
    """An entry for each phase, over all communication rounds, in the order of the data flow.

    Costs of `clients`, `stratify`, `recite` and `distill` are those of the processes that made the results; `prepare`
    (data and partition) and `evaluate` (tests, and fidelity and privacy where they were measured) are this process's.
    """
    clients = [client for each in results for client in each.clients]
    trained = Spent(total(one.cost for one in clients), len(clients), sum(one.from_store for one in clients))
    sent = sum(upload_bytes(client.upload.model) for client in clients)
    tested = replace(evaluate, macs=sum(map(_test_macs, results)))
    return {
        "prepare": entry(prepare),
        "clients": entry(trained, up=sent, down=_downloaded(results)),
        **ledger_of_server(results),
        "evaluate": entry(tested),
    }


def ledger_of_server(results: Iterable[Served]) -> dict[str, Entry]:
    """The entries of the server's own phases; one that no method asked for cost nothing."""
    served = list(results)
    spent = {
        "stratify": [each.guidance.spent for each in served if each.guidance],
        "recite": [each.recitals.spent for each in served if each.recitals],
        "distill": [each.server.spent for each in served],
    }
    return {phase: entry(_together(each)) for phase, each in spent.items()}


def entry(spent: Spent | Cost, *, up: int = 0, down: int = 0) -> Entry:
    """One phase's, with the bytes that clients sent and received for it."""
    known = spent if isinstance(spent, Spent) else Spent(spent, 0, 0)
    told = {**asdict(known.cost), "upload_bytes": up, "download_bytes": down}
    return {**told, "results": known.results, "from_store": known.from_store}


def _together(spent: Iterable[Spent]) -> Spent:
    known = list(spent)
    cost = total(each.cost for each in known)
    return Spent(cost, sum(each.results for each in known), sum(each.from_store for each in known))


def _downloaded(results: list[RunResult]) -> int:
    """At every exchange but the first each client begins at the server's model; before that a seed says all."""
    return sum(upload_bytes(before.server.model) * len(after.clients) for before, after in pairwise(results))


def _test_macs(result: RunResult) -> int:
    """Of the pass over the test set: every client that is used and the server, once an image."""
    image = result.data.spec.to_input(result.data.test_images[:1])
    models = [*result.given.uploads.models, result.server.model]
    return len(result.data.test_images) * sum(multiply_accumulates(model.to(image.device), image) for model in models)
