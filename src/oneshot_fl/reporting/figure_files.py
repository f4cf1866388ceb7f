"""The files that a run's figures and metrics lie in; whoever clears them away needs no library that draws."""

from pathlib import Path

from oneshot_fl.disk import writing
from oneshot_fl.tracking.told import METRICS

FIGURES = ("partition", "confusion", "guidance", "accuracy", "synthetic", "recitals")
FORMATS = ("png", "svg", "pdf")


def remove_figures(folder: Path) -> None:
    """Remove those of an earlier run: they would stand beside the summary of another one.

    Raises:
        OneshotError: one cannot be removed.
    """
    for path in (folder / f"{name}.{kind}" for name in FIGURES for kind in FORMATS):
        _remove(path)


def remove_metrics(folder: Path) -> None:
    """Remove those of an earlier run: not every run writes its own.

    Raises:
        OneshotError: they cannot be removed.
    """
    _remove(folder / METRICS)


def _remove(path: Path) -> None:
    if path.is_file():
        with writing(str(path)):
            path.unlink()
