"""What the page tells of single runs."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oneshot_fl.reporting.tables.not_done import command
from oneshot_fl.reporting.tables.run import Run, used_clients

Json = dict[str, Any]
ACCURACIES = ("accuracy", "balanced_accuracy")
OF_CLIENTS = ("kind", "model", "samples", *ACCURACIES, "upload_bytes", "quarantined", "epsilon", "delta")


def run_card(run: Run, place: tuple[int | None, str], out: Path) -> Json:
    """A run for the page at `out`; `place` is its setting and the label of its row. What is not told is left out."""
    setting, label = place
    card = {"s": setting, "m": label, "seed": run.seed, "status": run.status, "command": command(run)}
    if run.folder is not None:
        card |= {"folder": str(run.folder), "href": href(run.folder, out)}
    if run.error:
        card["error"] = run.error
    return card | (_found(run.summary) if run.summary else {})


def _found(summary: Json) -> Json:
    partition, names = summary.get("partition") or {}, (summary.get("data_spec") or {}).get("class_names")
    told = {
        "last": summary["server"]["accuracy_last"],
        "best": summary["server"]["accuracy_best"],
        "attack": (summary.get("attack") or {}).get("name"),
        "clients": [_client(client) for client in summary["clients"]],
        "counts": partition.get("class_counts"),
        "guidance": summary.get("guidance"),
        "used": used_clients(summary),
        "classes": names,
        "recall": [row.get("recall") for row in summary["server"].get("by_class") or []] or None,
        "ensembles": summary["ensemble"]["rows"],
        "commit": (summary.get("code") or {}).get("commit"),
        "seconds": (summary.get("seconds") or {}).get("run"),
    }
    return {key: value for key, value in told.items() if value is not None}


def _client(client: Json) -> Json:
    hostile = {"hostile": True} if client.get("hostile") else {}
    return {key: client[key] for key in OF_CLIENTS if client.get(key) is not None} | hostile


def href(folder: Path, out: Path) -> str:
    """The link from the page to a folder; from another drive its whole place."""
    try:
        place = Path(os.path.relpath(folder.absolute(), out.absolute().parent)).as_posix()
    except ValueError:  # Windows' drives have no way between them
        return folder.absolute().as_uri()
    return quote(os.fsencode(f"./{place}/"))
