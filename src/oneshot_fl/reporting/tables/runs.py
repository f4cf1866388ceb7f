"""Runs as tables need them: read from summaries, and from the traces of those that have none."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.record import TRACE

Status = Literal["done", "failed", "unfinished"]

SPREADS = {"dirichlet": "alpha", "dirichlet_class_prior": "alpha", "classes_per_client": "classes"}
SPREADS |= {"lognormal": "sigma", "leave_one_domain_out": "held_out"}
"""The setting by which tables name a partition."""


@dataclass(frozen=True)
class Run:
    """One run: what it compares under which settings (`reporting.facts`) and, where it is done, its summary."""

    method: str
    changed: dict[str, Any]
    data: str
    budget: str
    study: str
    seed: int
    models: dict[str, Any]
    settings: dict[str, Any]
    status: Status
    summary: dict[str, Any] | None = None
    error: str = ""

    def setting(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key of the settings, `distill.rounds`."""
        node: Any = self.settings
        for part in key.split("."):
            if not isinstance(node, dict) or part not in node:
                return default
            node = node[part]
        return node

    @property
    def partition(self) -> str:
        """The partition's name."""
        return self.setting("partition.name")

    @property
    def spread(self) -> str:
        """How uneven the partition is: alpha, classes, sigma or the held-out domain; empty for iid."""
        value = self.setting(f"partition.{SPREADS.get(self.partition, '')}")
        return "" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)

    @property
    def holds_out(self) -> bool:
        """Whether part of the training set was taken away from all clients."""
        return self.setting("proxy.name") == "holdout"

    @property
    def proxy(self) -> str:
        """The proxy images that the method distils on, `noise 2500`; empty where it uses none."""
        if "ProxySource" not in str(self.setting("method.source._target_")):
            return ""
        told = (self.setting(f"proxy.{key}") for key in ("name", "data", "fraction", "samples"))
        return " ".join(str(value) for value in told if value is not None)

    @property
    def label(self) -> str:
        """The method with what was changed in it, and its proxy images where they are what it distils on."""
        told = [_short(key, value) for key, value in self.changed.items()]
        if self.proxy:
            told.append(f"proxy={self.proxy}")
        return f"{self.method} ({', '.join(told)})" if told else self.method


def read_runs(paths: Iterable[Path]) -> list[Run]:
    """Every run below folders and in files of `collect`, oldest first; of two alike (setting and seed) the newer.

    Raises:
        OneshotError: a folder is missing or holds none, or a file is not what this version writes.
    """
    runs = {_identity(run): run for path in paths for run in _read_all(path)}
    return list(runs.values())


def _read_all(path: Path) -> list[Run]:
    if path.is_file():
        lines = path.read_text().splitlines()
        return [_read(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    places = {found.parent for name in ("summary.json", TRACE) for found in path.rglob(name)}
    if not places:
        raise OneshotError(f"{path}: no summary.json in or below it; give the folder of a run or of a sweep")
    return [_read_folder(place) for place in sorted(places, key=_age)]


def collect(runs: Iterable[Run], file: Path) -> None:
    """One file with a line a finished run: its summary, of the rounds only the accuracies."""
    summaries = [run.summary for run in runs if run.summary]
    slim = [{**each, "rounds": [_accuracy_only(row) for row in each["rounds"]]} for each in summaries]
    file.write_text("".join(f"{json.dumps(each)}\n" for each in slim))


def _accuracy_only(row: dict[str, Any]) -> dict[str, Any]:
    return {"round": row["round"], "accuracy": row["accuracy"]}


def _age(folder: Path) -> float:
    return max(path.stat().st_mtime for name in ("summary.json", TRACE) if (path := folder / name).exists())


def _short(key: str, value: Any) -> str:
    """A changed key; a part is told by the name of its class."""
    return f"{key.removesuffix('._target_')}={str(value).rsplit('.', 1)[-1] if key.endswith('_target_') else value}"


FACTS = ("method", "changed", "data", "budget", "study", "seed", "models", "settings")


def _read_folder(folder: Path) -> Run:
    path = next(path for name in ("summary.json", TRACE) if (path := folder / name).exists())
    return _read(path.read_text(), str(path))


def _read(text: str, place: str) -> Run:
    """A run from its summary, or from the trace of one that has none."""
    try:
        told = json.loads(text)
        facts = {name: told[name] for name in FACTS}
    except (ValueError, KeyError, TypeError) as error:
        raise OneshotError(f"{place}: not what this version writes ({error!r}); run it again") from error
    if "server" in told:
        return Run(**facts, status="done", summary=told)
    status: Status = "failed" if told.get("status") == "failed" else "unfinished"
    return Run(**facts, status=status, error=told.get("error", ""))


def _identity(run: Run) -> str:
    """Everything that is set, the seed included: a second run of it replaces the first."""
    return json.dumps([run.data, run.method, run.seed, run.models, run.settings], sort_keys=True)
