"""What an earlier run left in a folder that is another one's now; whoever clears it away needs no drawing library."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from oneshot_fl.config.record import CONFIG, EXPORT, MODEL, SUMMARY, TRACE
from oneshot_fl.disk import writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.process import say
from oneshot_fl.tracking.told import METRICS

OF_A_RESULT = ("kind", "method", "data", "seed", "settings", "uploads", "server")
"""What tells in a summary one result from another."""
FIGURES = ("partition", "confusion", "guidance", "accuracy", "synthetic", "recitals")
FORMATS = ("png", "svg", "pdf")
FIGURE_FILES = tuple(f"{name}.{kind}" for name in FIGURES for kind in FORMATS)
LEFT = (CONFIG, MODEL, METRICS, *FIGURE_FILES, SUMMARY)
"""Files that runs of one key leave, all or some of them, in the order in which they are copied: where the summary is,
all is. What else lies there is somebody's own."""
EVENTS = "tensorboard"
"""The folder of a logger of ours; how others' are called, their settings say. Those of W&B belong to one run alone."""
OF_LOGGERS = re.compile(r"events\.out\.tfevents\..*|hparams\.yaml|" + re.escape(METRICS))
"""What Lightning's loggers call the files that they keep in such folders."""


def drawn_in(folder: Path) -> list[Path]:
    """The figures of the run there, in their order."""
    return [path for name in FIGURES if (path := folder / f"{name}.png").is_file()]


def remove_figures(folder: Path) -> None:
    """Remove those of an earlier run: they would stand beside the summary of another one.

    Raises:
        OneshotError: one cannot be removed.
    """
    for name in FIGURE_FILES:
        _remove(folder / name)


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
    """Say that an `export` there is of the model before the one that has just been written.

    What lies in folders of its own is of other model files.
    """
    place = folder / EXPORT
    if place.is_dir() and any(each.is_file() for each in place.iterdir()):
        say(f"{place}: is of the model before this one; export it anew")


def require_free(folder: Path) -> None:
    """Whether a run may write there: a finished one, whose place it takes, is told of.

    Raises:
        OneshotError: a file is called like one of a run's, which would be written over or removed, and neither a trace
            nor a summary says that a run left it.
    """
    _tell_of_result(folder)
    require_no_others(folder)


def require_no_others(folder: Path, *, also: Sequence[str] = ()) -> None:
    """Whether what is called like a result's files was left by one.

    Args:
        also: names of more such files.

    Raises:
        OneshotError: a file is not, and would be written over or removed.
    """
    if any((folder / name).is_file() for name in (TRACE, SUMMARY)):
        return
    if found := [name for name in (*LEFT, *also) if (folder / name).is_file()]:
        raise OneshotError(
            f"{folder}: holds {found[0]}, which would be written over, and no result lies there; choose another "
            "folder, or move that away"
        )


def _tell_of_result(folder: Path) -> None:
    if not (folder / SUMMARY).is_file():
        return
    found = _read(folder / SUMMARY, json.loads)  # its trace may be of a later one, which did not end
    what = ", ".join(f"{key} {found[key]}" for key in ("method", "data", "seed") if key in found)
    say(f"{folder}: holds a finished run{what and f' ({what})'}, which this one takes the place of")


def holds(folder: Path, summary: Mapping[str, Any]) -> bool:
    """Whether the result there is the one of a summary; also where none is left that could be another's.

    The same run, made anew, is the same result, whatever it took.
    """
    there = _read(folder / SUMMARY, json.loads)
    return not there or _of_a_result(there) == _of_a_result(summary)


def _of_a_result(summary: Mapping[str, Any]) -> str:
    return json.dumps([summary.get(key) for key in OF_A_RESULT])  # a tuple is a list, and NaN the same as NaN


def logged(run: Path) -> Iterator[Path]:
    """Every file in the folders that loggers keep in a run's; none of a folder that another run lies in."""
    for folder in (run / name for name in sorted(_loggers_folders(run))):
        below = [] if folder.is_symlink() else list(folder.rglob("*"))
        if not any(each.name == TRACE for each in below):
            yield from (each for each in below if each.is_file())


def _loggers_folders(run: Path) -> set[str]:
    """The names of those folders, as far as the run's configuration tells."""
    loggers = _read(run / CONFIG, yaml.safe_load).get("logger")
    settings = loggers.values() if isinstance(loggers, Mapping) else ()
    names = {str(each.get("name") or "") for each in settings if isinstance(each, Mapping)}
    return {EVENTS, *(name for name in names if re.fullmatch(r"\w[\w .-]*", name))}


def _read(file: Path, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    """What it says; nothing where a run ended before it left any, or where something else lies there."""
    try:
        told = parse(file.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return told if isinstance(told, Mapping) else {}


def _remove(path: Path) -> None:
    if path.is_file():
        with writing(str(path)):
            path.unlink()
