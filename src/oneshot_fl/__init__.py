"""One-shot federated learning: every client uploads its model once, the server makes one good model of them.

The public face: `run` an experiment, `load` the global model that it left, read the `results` of many.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneshot_fl.version import __version__

if TYPE_CHECKING:
    from oneshot_fl.serving.model import ServedModel

__all__ = ["Result", "__version__", "load", "results", "run"]


@dataclass(frozen=True)
class Result:
    """What a run left."""

    summary: dict[str, Any]
    """`summary.json`; accuracies are fractions."""
    folder: Path

    @property
    def accuracy(self) -> float:
        """The server's test accuracy after the last round, a fraction."""
        return self.summary["server"]["accuracy_last"]

    def model(self, *, allowed: Collection[str] = ()) -> "ServedModel":
        """The global model, as `load` gives it."""
        return load(self.folder, allowed=allowed)


def run(*overrides: str, folder: str | Path | None = None) -> Result:
    """One run, as `python -m oneshot_fl OVERRIDES` does it: `run("method=dense", "data=mnist", "data.root=DIR")`.

    Args:
        overrides: Hydra's, one `key=value` each.
        folder: for everything that the run leaves; by default a new one below `outputs/`.

    Raises:
        OneshotError: something is wrong with the overrides or the data, in one line that says what.
    """
    from oneshot_fl.config import from_overrides
    from oneshot_fl.job import job

    place = Path("outputs", datetime.now().strftime("%Y-%m-%d/%H-%M-%S-%f")) if folder is None else Path(folder)
    bind, known = from_overrides(*overrides)
    return Result(job(bind, known, place), place)


def load(place: str | Path, *, allowed: Collection[str] = ()) -> "ServedModel":
    """The global model in a folder that a run left, or in a model file, in evaluation mode.

    `model.predict(images)` takes files, folders, Pillow's pictures or pixels. Called with images `[b, C, H, W]` that
    are normalised as `model.spec` says, it gives logits `[b, c]`.

    Args:
        allowed: names of functions or classes, not ours, that may be imported to build the model.

    Raises:
        OneshotError: there is no such model, its file is damaged, or its architecture is not allowed.
    """
    from oneshot_fl.serving.load import load as loaded

    return loaded(Path(place), allowed=allowed)


def results(*folders: str | Path) -> list[dict[str, Any]]:
    """The summaries of every finished run in or below `folders`, oldest first.

    Raises:
        OneshotError: a folder is missing or holds no run.
    """
    from oneshot_fl.reporting.tables.runs import read_runs

    return [run.summary for run in read_runs(map(Path, folders)) if run.summary]
