"""Runs that are done already: found again before any data is loaded, so that a sweep begun anew skips them.

`<store>/runs/<key>.<arithmetic>.json` names the folder of a finished run. The key covers the whole configuration, the
files that it only names, the code and, for data that lies in files, every file's place, size, inode and times of
change, and for runs that Weights & Biases shows where they are shown, which the environment may decide; the arithmetic
is what the machine made of `auto`. Neither needs torch, so to find a run costs a fraction of what loading it does. What
a user's own function makes of data, proxy or partition may come from anywhere: such runs make it anew, and find the
results of their phases, whose keys hold what it has made, in the store instead. Of other parts of a user's own the
phases know the settings, the code and the files that the settings name, and so does the key. What a user's own logger
writes nobody knows, so nobody can copy it: a run with one is done in its own folder alone.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneshot_fl.config.named import code_of, named
from oneshot_fl.config.record import CONFIG, MODEL, SUMMARY, TRACE, without
from oneshot_fl.devices import arithmetic_here
from oneshot_fl.disk import folders_below, make_folder, sha256_of, write_atomically, writing
from oneshot_fl.recipe import is_ours
from oneshot_fl.reporting.earlier import LEFT, logged, remove_figures, remove_logged, tell_of_export
from oneshot_fl.runs import RUNS, remember_run, remembered_run
from oneshot_fl.tracking.wandb_run import destination

MOST_FILES = 200_000
"""Below a `data.root`; of more it would take longer to look at all of them than to load the data."""
MADE_ANEW = ("data", "proxy", "partition")
"""Groups of functions that every run calls, and of whose results the keys of its phases are made."""
ANYWHERE = {"hydra", "store", "study", "workers", "data.cache", "trainer.jobs_per_gpu"}
"""Keys that change nothing in a run's folder but the rounding of numbers (`workers`).

The study counts where a dashboard groups runs by it.
"""
LIGHTNINGS = "lightning."
"""What the `_target_` of a logger of Lightning's begins with."""
WANDBS = ".WandbLogger"
"""How that of Lightning's logger to Weights & Biases ends."""
LOG = "job.log"
"""What a job of a parallel sweep printed, in its folder."""
NEEDED = (CONFIG, MODEL, SUMMARY)
"""Files without which a finished run is none."""
HASHES = "sha256"
"""Where a trace tells their hashes; those of earlier versions' runs tell fewer or none."""


@dataclass(frozen=True)
class Finished:
    """Where a run of this key would be remembered."""

    store: Path
    key: str
    arithmetic: str
    """How it computes: `devices.arithmetic_here`, until the run itself knows better."""
    copied: bool = True
    """Whether all that such a run leaves is known, so that a copy is as good; else it only counts where it lies."""

    @property
    def _file(self) -> Path:
        return self.store / RUNS / f"{self.key}.{self.arithmetic}.json"

    @property
    def told(self) -> dict[str, str]:
        """What a run's trace says of it."""
        return {"key": self.key, "arithmetic": self.arithmetic}

    def find(self, own: Path) -> Path | None:
        """The folder of a finished run of this key and arithmetic that is still there; `own` is that of who asks.

        It comes first, also because it may have been moved there.
        """
        places = [own, *(_named(self._file) if self.copied else [])]
        return next((folder for folder in places if _is_done(folder, self.told)), None)

    def find_of_any_machine(self, own: Path) -> Path | None:
        """The same whatever the machine made of `auto`, for those who ask on behalf of another machine.

        What lies in the job's own folder comes first: nothing that was computed elsewhere is written over it.
        """
        files = sorted((self.store / RUNS).glob(f"{self.key}.*.json")) if self.copied else []
        places = (own, *(folder for file in files for folder in _named(file)))
        return next((folder for folder in places if _is_done(folder, {"key": self.key})), None)

    def remember(self, folder: Path) -> None:
        """The run in `folder` is done.

        Raises:
            OneshotError: the store, which does not know it yet, cannot be written.
        """
        if _named(self._file) != [folder.absolute()]:
            remember_run(self._file, folder)


def finished(config: Mapping[str, Any]) -> Finished | None:
    """Where the run of a whole, resolved configuration would be remembered; None where its data may come from anywhere.

    Raises:
        OneshotError: a `_target_` has no module, or settings of W&B's logger contradict each other.
    """
    files = named(config)
    targets = [target for file in files if file.group == "data" for target in file.targets]
    if not all(map(is_ours, [*(_target(config.get(group)) for group in MADE_ANEW), *targets])):
        return None
    roots = {str(node["root"]) for group in ("data", "proxy") if (node := config[group]).get("root")}
    stamps = {root: _stamp(Path(os.path.expanduser(root))) for root in sorted(roots)}
    if None in stamps.values():
        return None
    grouped = bool(config["logger"].keys() - {"csv"})
    told = without(config, ANYWHERE - {"study"} if grouped else ANYWHERE)
    also = [[file.group, file.name, file.settings] for file in files]
    seen = [destination(node) for node in config["logger"].values() if _target(node).endswith(WANDBS)]
    # not sorted: kinds of clients are assigned, and sources draw, in the order in which they stand
    text = json.dumps([told, also, code_of(config, files), stamps, seen], default=str)
    store = Path(config["store"]).expanduser().absolute()
    key, copied = hashlib.sha256(text.encode()).hexdigest()[:20], all(map(_is_known, config["logger"].values()))
    return Finished(store, key, arithmetic_here(config["trainer"]), copied)


def hashes_of(folder: Path) -> dict[str, dict[str, str]]:
    """What the trace of a run that has just ended says of its files, so that it is known when one is damaged."""
    return {HASHES: {name: sha256_of(folder / name) for name in NEEDED if (folder / name).is_file()}}


def record_of(done: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """What a finished run says of itself, for another one that is the same but for what is `known` of it.

    A sweep's number is the other one's own or none: the finished run may be a job of another sweep.
    """
    return _as_known(json.loads((done / TRACE).read_text()), known)


def _as_known(record: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: told for key, told in record.items() if key != "job"}
    return own | {key: known[key] for key in ("study", "overrides", "searched", "job") if key in known}


def join_sweep(done: Path, known: Mapping[str, Any]) -> None:
    """A finished run becomes the job of a sweep that is `known`, if it was none or another; its trace tells its number.

    Raises:
        OSError, ValueError: its trace was removed or damaged meanwhile.
    """
    before = json.loads((done / TRACE).read_text())
    if "job" in known and (now := _as_known(before, known)) != before:
        write_atomically(done / TRACE, json.dumps(now, indent=1))


def adopt(done: Path, folder: Path) -> dict[str, Any]:
    """Copy what a finished run left into another run's folder, but for its trace; the summary.

    Raises:
        OneshotError: it cannot be copied.
    """
    make_folder(folder)
    if done.resolve() != folder.resolve():
        remove_figures(folder)
        remove_logged(folder)
        with writing(str(folder)):
            for path in list(_left_by(done)):  # before any lies there, as `folder` may lie in it
                target = folder / path.relative_to(done)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        tell_of_export(folder)
    return json.loads((folder / SUMMARY).read_text())


def _left_by(run: Path) -> Iterator[Path]:
    """Every file of a run's folder that another run of its key would leave too; no other run that lies in it."""
    yield from (path for name in LEFT if (path := run / name).is_file())
    yield from logged(run)


def _named(file: Path) -> list[Path]:
    """The folder that a file names; none where it was never written or is damaged."""
    try:
        return [remembered_run(file)]
    except (OSError, ValueError):
        return []


def _is_done(folder: Path, told: Mapping[str, str]) -> bool:
    """Whether a finished run of which this is told lies in a folder; what is moved or damaged is run."""
    wanted = {"status": "done", **told}
    try:
        trace = json.loads((folder / TRACE).read_text())
        summary = json.loads((folder / SUMMARY).read_text())
        as_told = isinstance(trace, dict) and all(trace.get(name) == value for name, value in wanted.items())
        return as_told and isinstance(summary, dict) and "server" in summary and _is_whole(folder, trace)
    except (OSError, ValueError, TypeError):
        return False


def _is_whole(folder: Path, trace: Mapping[str, Any]) -> bool:
    """Whether the files that a run is nothing without are there and, where their hashes are told, as it left them."""
    hashes = hashes_of(folder)[HASHES]
    return len(hashes) == len(NEEDED) and hashes == hashes | trace.get(HASHES, {})


def _is_known(logger: Any) -> bool:
    """Whether it is known what a logger leaves in a run's folder; of a user's own nobody knows."""
    return is_ours(_target(logger)) or _target(logger).startswith(LIGHTNINGS)


def _target(node: Any) -> str:
    return str(node.get("_target_", "oneshot_fl.")) if isinstance(node, Mapping) else ""


def _stamp(root: Path) -> str | None:
    """A hash over place, size, times of change and inode of every file below `root`; None if there are too many.

    Folders that are renamed into each other keep the times of their files, and copies may be given those of what they
    are copies of. Where a network's file system numbers a file anew, the run only looks for its results in the store.
    """
    digest = hashlib.sha256()
    for number, path in enumerate(_files(root)):
        if number == MOST_FILES:
            return None
        status = path.stat()
        state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        digest.update(os.fsencode(f"{path.relative_to(root)}:{state}\n"))
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    """Also behind links, as data are read."""
    for folder, names in folders_below(root):
        yield from (path for name in names if (path := folder / name).is_file())
