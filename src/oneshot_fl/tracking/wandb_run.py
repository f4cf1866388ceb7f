"""A run as Weights & Biases shows it: all that only W&B knows of is here.

A run has a stable id: begun again, it goes on where it was. Offline runs are uploaded with `wandb sync`; the lineage
from clients to the server's model is known online only, because W&B does not let an offline run use an artifact.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from oneshot_fl.errors import OneshotError, one_line
from oneshot_fl.process import again_and_again, say
from oneshot_fl.tracking.told import About, Outcome

if TYPE_CHECKING:
    from lightning.pytorch.loggers import WandbLogger
    from torch import Tensor

LOSSES = "clients/losses"
"""The table of all clients' losses; a panel for each of a hundred clients would be no use."""
LOSS = re.compile(r"(?P<before>.*)clients/(?P<client>\d+)/loss")
IN_TABLES = re.compile(r"(.*/)?evaluate/(client|recall)_\d+")
"""Metrics of single clients and classes, which `evaluate/clients` and `evaluate/by_class` hold."""
OF_CLIENTS = ["client", "kind", "model", "samples", "accuracy", "balanced_accuracy", "quarantined"]
"""The columns of that table."""
WHERE_TOLD = ["epsilon", "delta", "hostile"]
"""Columns that it has where they say something of a client."""
LONGEST_TAG = 64
SHOWN = 40
"""Images of a grid."""
PUBLIC = "https://api.wandb.ai"
"""Where runs go unless `WANDB_BASE_URL` says otherwise."""
SILENCE = 20.0
"""Seconds without an answer after which it is said who is waited for, again and again."""


@contextmanager
def _starting() -> Iterator[None]:
    """What W&B refuses inside the block in one line; a server that cannot be reached is told of while it is awaited.

    Raises:
        OneshotError: W&B cannot start, or refuses its settings.
    """
    import wandb

    waiting = "logger: Weights & Biases does not answer yet; logger.wandb.mode=offline does without it"
    try:
        with again_and_again(lambda: say(waiting), SILENCE):
            yield
    except (wandb.errors.UsageError, ValueError) as error:  # ValueError: of pydantic, which checks its settings
        raise OneshotError(
            f"logger: Weights & Biases refuses what logger.wandb or a WANDB_ variable says ({one_line(error)})"
        ) from error
    except wandb.Error as error:
        raise OneshotError(
            f"logger: Weights & Biases cannot start ({one_line(error)}); use logger.wandb.mode=offline"
        ) from error


def told_of(about: About, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What `wandb.init` is told of a run, where the logger's file says nothing else.

    Args:
        about: the run.
        settings: of the logger's file: `mode`, or Lightning's `offline`; else `WANDB_MODE` counts, else it is online
            where an API key is known.

    Raises:
        OneshotError: the API key or a setting is refused, or two of them contradict each other.
    """
    import wandb

    with _starting():
        return {
            "id": about.id,
            "resume": "allow",
            "name": about.name,
            "group": about.group,
            "job_type": about.phases,
            "tags": [tag[:LONGEST_TAG] for tag in about.tags],
            "config": dict(about.config),
            "mode": _mode(settings) or ("online" if wandb.login(prompt=False, verify=False) else "offline"),
            "reinit": "finish_previous",
            "settings": wandb.Settings(silent=True, console="off"),
        }


def _mode(settings: Mapping[str, Any]) -> str | None:
    """What somebody has said; None where nobody has."""
    mode, offline = settings.get("mode"), settings.get("offline")
    if offline and mode == "online":
        raise OneshotError("logger.wandb.offline=true: contradicts logger.wandb.mode=online; leave out one of them")
    return mode or ("offline" if offline else os.environ.get("WANDB_MODE"))


def destination(settings: Mapping[str, Any]) -> tuple[str | None, ...]:
    """Where a logger's run is seen, of which the environment decides what its settings do not.

    Its mode, whose and in which project it is, and the server.
    Found without W&B's library, which takes seconds to load.

    Raises:
        OneshotError: two settings contradict each other.
    """
    server = os.environ.get("WANDB_BASE_URL") or PUBLIC
    mode = _mode(settings) or ("online" if _knows_key(server) else "offline")
    whose = (settings.get(name) or os.environ.get(f"WANDB_{name.upper()}") for name in ("entity", "project"))
    return mode, *whose, server


def _knows_key(server: str) -> bool:
    """Whether an API key is in the environment or where `wandb login` leaves it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        logins = netrc(Path(os.environ.get("NETRC") or "~/.netrc").expanduser())
    except (OSError, NetrcParseError):
        return False
    return logins.authenticators(urlsplit(server).netloc) is not None


class WandbSink:
    """Metrics on an axis per phase, client losses as one table, images, tables, and the server's model.

    Raises:
        OneshotError: W&B cannot start, or refuses its settings.
    """

    shows_images = True

    def __init__(self, logger: "WandbLogger") -> None:
        import wandb

        self._wandb: Any = wandb
        with _starting():
            self.run: Any = logger.experiment
        self.axes: set[str] = set()
        self._losses: list[list[Any]] = []
        self._before = dict(self.run.summary) if self.run.resumed else {}

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log against an axis per phase (`distill/step`), because phases count different things.

        What an earlier process of the same run has logged already is left out.
        """
        curves = {}
        for name, value in metrics.items():
            if found := LOSS.fullmatch(name):
                self._losses.append([found["before"], int(found["client"]), step, value])
            elif not IN_TABLES.fullmatch(name):
                curves[name] = value
        if curves:
            self._at(step, curves)

    def images(self, name: str, images: "Tensor", step: int) -> None:
        """A grid under its step."""
        shown = images[:SHOWN].permute(0, 2, 3, 1).cpu().numpy()
        self._at(step, {name: [self._wandb.Image(each) for each in shown]})

    def _at(self, step: int, values: Mapping[str, Any]) -> None:
        axes = {f"{name.rsplit('/', 1)[0]}/step" for name in values}
        if all(step <= self._before.get(axis, -1) for axis in axes):
            return
        for axis in sorted(axes - self.axes):
            self.run.define_metric(f"{axis.removesuffix('/step')}/*", step_metric=axis)
        self.axes |= axes
        self.run.log({**values, **dict.fromkeys(axes, step)})

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Every figure as an image panel."""
        self.run.log({f"figures/{name}": self._wandb.Image(str(path)) for name, path in paths.items()})

    def outcome(self, outcome: Outcome) -> None:
        """The summary with the costs, the tables, and the model as an artifact."""
        tables = {LOSSES: (["exchange", "client", "epoch", "loss"], self._losses), **_tables(outcome)}
        self.run.log({name: self._wandb.Table(columns=heads, data=rows) for name, (heads, rows) in tables.items()})
        self.run.summary.update(summarised(outcome.summary))
        self._keep_uploads(outcome)
        model = self._wandb.Artifact(f"server-{self.run.id}", type="model", metadata={"uploads": outcome.uploads})
        for file in outcome.files:
            model.add_file(str(file))
        self.run.log_artifact(model)

    def _keep_uploads(self, outcome: Outcome) -> None:
        """What the server's model was made of: keys, not weights; an input of the run where that can be said."""
        clients = self._wandb.Artifact(f"uploads-{self.run.id}", type="uploads", metadata={"keys": outcome.uploads})
        with clients.new_file("uploads.json") as file:
            json.dump(dict(outcome.uploads), file, indent=1)
        if self.run.settings.mode == "online":
            self.run.use_artifact(clients)
        else:
            self.run.log_artifact(clients)

    def close(self, failed: bool) -> None:
        """Finish the run; a failed job is marked as such."""
        self.run.finish(exit_code=1 if failed else 0)


def summarised(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers by which runs are sorted and compared, flat: accuracies of the server and `cost/phase/figure`."""
    server = {name: summary["server"].get(name) for name in SERVER}
    ensembles = summary["ensemble"].get("rows") or {}
    spent = {f"cost/{key}": value for key, value in _flat(summary["cost"])}
    return {
        **{f"server/{name}": value for name, value in server.items() if value is not None},
        **{f"ensemble/{name}": value for name, value in ensembles.items()},
        **{name: value for name, value in spent.items() if value is not None},
    }


SERVER = ("accuracy_last", "accuracy_best", "balanced_accuracy", "macro_auroc", "ece")


def _flat(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for phase, entry in node.items():
        yield from ((f"{phase}/{name}", value) for name, value in entry.items())


def _told(clients: Sequence[Mapping[str, Any]]) -> list[str]:
    def says(told: Any) -> bool:
        return told is not None and told is not False  # an epsilon of 0 says much

    return [head for head in WHERE_TOLD if any(says(client.get(head)) for client in clients)]


def _tables(outcome: Outcome) -> dict[str, tuple[list[str], list[list[Any]]]]:
    """Every class, every client, and the guidance matrix with a row for every class and client that was used."""
    of_classes = outcome.summary["server"].get("by_class")
    of_clients = [{"client": f"client {k}", **each} for k, each in enumerate(outcome.summary.get("clients") or ())]
    tables: dict[str, tuple[list[str], list[list[Any]]]] = {}
    for name, heads, entries in (
        ("evaluate/by_class", ["class", "images", "recall", "auroc"], of_classes),
        ("evaluate/clients", OF_CLIENTS + _told(of_clients), of_clients),
    ):
        if entries:
            tables[name] = (heads, [[entry.get(head) for head in heads] for entry in entries])
    if outcome.guidance is not None:
        names = outcome.summary["data_spec"]["class_names"]
        rows = [
            [name, client, u]
            for name, row in zip(names, outcome.guidance, strict=True)
            for client, u in zip(outcome.uploads, row, strict=False)  # decoders, which come last, have none
        ]
        tables["guidance/matrix"] = (["class", "client", "guidance"], rows)
    return tables
