"""What an earlier run left in a folder that is another one's now; whoever clears it away needs no drawing library."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from oneshot_fl.config.record import CONFIG, EXPORT, TRACE
from oneshot_fl.disk import writing
from oneshot_fl.process import say
from oneshot_fl.tracking.told import METRICS

FIGURES = ("partition", "confusion", "guidance", "accuracy", "synthetic", "recitals")
FORMATS = ("png", "svg", "pdf")
EVENTS = "tensorboard"
"""The folder of a logger of ours; how others' are called, their settings say. Those of W&B belong to one run alone."""
OF_LOGGERS = re.compile(r"events\.out\.tfevents\..*|hparams\.yaml|" + re.escape(METRICS))
"""What Lightning's loggers call the files that they keep in such folders."""


def remove_figures(folder: Path) -> None:
    """Remove those of an earlier run: they would stand beside the summary of another one.

    Raises:
        OneshotError: one cannot be removed.
    """
    for path in (folder / f"{name}.{kind}" for name in FIGURES for kind in FORMATS):
        _remove(path)


def remove_logged(folder: Path) -> None:
    """Remove the metrics and events of an earlier run: not every run writes its own, and TensorBoard shows all as one.

    Raises:
        OneshotError: they cannot be removed.
    """
    _remove(folder / METRICS)
    for path in list(logged(folder)):
        if OF_LOGGERS.fullmatch(path.name):
            _remove(path)


def tell_of_export(folder: Path) -> None:
    """Say that an `export` there is of the model before the one that has just been written."""
    if (folder / EXPORT).is_dir():
        say(f"{folder / EXPORT}: is of the model before this one; export it anew")


def logged(run: Path) -> Iterator[Path]:
    """Every file in the folders that loggers keep in a run's; none of a folder that another run lies in."""
    for folder in (run / name for name in sorted(_loggers_folders(run))):
        below = [] if folder.is_symlink() else list(folder.rglob("*"))
        if not any(each.name == TRACE for each in below):
            yield from (each for each in below if each.is_file())


def _loggers_folders(run: Path) -> set[str]:
    """The names of those folders, as far as the run's configuration tells."""
    loggers = _configured(run).get("logger")
    settings = loggers.values() if isinstance(loggers, Mapping) else ()
    names = {str(each.get("name") or "") for each in settings if isinstance(each, Mapping)}
    return {EVENTS, *(name for name in names if re.fullmatch(r"\w[\w .-]*", name))}


def _configured(run: Path) -> Mapping[str, object]:
    """A run's configuration; nothing of one that ended before it left any, or where something else lies there."""
    try:
        config = yaml.safe_load((run / CONFIG).read_text())
    except (OSError, UnicodeError, yaml.YAMLError):
        return {}
    return config if isinstance(config, Mapping) else {}


def _remove(path: Path) -> None:
    if path.is_file():
        with writing(str(path)):
            path.unlink()
