"""One-shot federated learning: every client uploads its model once, the server makes one good model of them.

The public face: `run` an experiment, `load` the global model that it left, read the `results` of many.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneshot_fl.version import __version__

if TYPE_CHECKING:
    from torch import nn

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

    def model(self) -> "nn.Module":
        """The global model, as `load` gives it."""
        return load(self.folder)


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


def load(folder: str | Path) -> "nn.Module":
    """The global model that a run left in `folder`, in evaluation mode: images as models see them -> logits.

    Images are `[b, C, H, W]`, normalised as `summary.json`'s `data_spec` says.

    Raises:
        OneshotError: the folder holds no finished run, or its files do not fit each other.
    """
    from oneshot_fl.config.saved import saved_model

    return saved_model(Path(folder))


def results(*folders: str | Path) -> list[dict[str, Any]]:
    """The summaries of every finished run in or below `folders`, oldest first.

    Raises:
        OneshotError: a folder is missing or holds no run.
    """
    from oneshot_fl.reporting.tables.runs import read_runs

    return [run.summary for run in read_runs(map(Path, folders)) if run.summary]
