"""How the jobs of a sweep stand, read from the traces that they leave; also from another machine."""

import json
import os
import shlex
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from oneshot_fl.config.compose import placed
from oneshot_fl.config.record import TRACE
from oneshot_fl.disk import folders_below
from oneshot_fl.errors import OneshotError
from oneshot_fl.process import say
from oneshot_fl.sweeps.manifest import MANIFEST, Manifest, read_manifest
from oneshot_fl.tracking.progress import PULSE

Status = Literal["done", "running", "failed", "killed", "interrupted", "to do"]
STATUSES: tuple[Status, ...] = get_args(Status)
NOT_DONE: tuple[Status, ...] = ("failed", "killed", "interrupted")
"""What `--rerun failed` runs again: begun, not done, and not on any more."""
SILENT = 120.0
"""Seconds without a sign after which a job counts as killed; it gives one every 15."""


@dataclass(frozen=True)
class Job:
    """One job of a sweep and how it stands."""

    number: int
    overrides: tuple[str, ...]
    what: str
    """Those of its overrides that other jobs do not have."""
    status: Status = "to do"
    folder: Path | None = None
    host: str = ""
    device: str = ""
    begun: float = 0.0
    seconds: float | None = None
    """That it took, from its trace; None of one that is not done."""
    error: str = ""
    progress: str = ""
    """What a running one is doing."""
    searched: tuple[str, ...] = ()
    """`Manifest.searched`"""
    cwd: str = ""
    """`Manifest.cwd`"""

    @property
    def place(self) -> str:
        """Where it runs or ran, as far as that is known."""
        return ", ".join(each for each in (self.host, self.device) if each)

    @property
    def command(self) -> str:
        """What to type to run it again in its folder, or without one in a new folder; there where the sweep began."""
        folder = [] if self.folder is None else [placed("hydra.run.dir", self.folder.absolute())]
        command = shlex.join(["python", "-m", "oneshot_fl", *self.searched, *self.overrides, *folder])
        return command if self.cwd in ("", os.getcwd()) else f"cd {shlex.quote(self.cwd)} && {command}"


def jobs_of(folder: Path, manifest: Manifest, *, now: float | None = None) -> list[Job]:
    """Every job of the sweep in `folder`, in order."""
    moment = time.time() if now is None else now
    found = {number: [unseen(number, manifest)] for number in sorted(manifest.jobs)}
    for place in _traced(folder):
        trace = read_trace(place)
        if isinstance(number := trace.get("job"), int) and number in found:
            found[number].append(as_job(number, manifest, place, trace, moment))
    return [max(tries, key=_counts) for tries in found.values()]


def _counts(job: Job) -> tuple[bool, bool, bool, float]:
    """Which try at a job counts, where it has several folders: one that runs, one that is done, or else the newest."""
    return job.status == "running", job.status == "done", job.status != "to do", job.begun


def _traced(sweep: Path) -> Iterator[Path]:
    """Folders in a sweep's own in which a job left a trace; those of another sweep that lies there are that one's."""
    others: set[Path] = set()
    for place, names in folders_below(sweep):
        if place.parent in others or (MANIFEST in names and place != sweep):
            others.add(place)
        elif TRACE in names:
            yield place


def read_trace(folder: Path) -> dict[str, Any]:
    """A job's `run.json`; empty where there is none."""
    try:
        trace = json.loads((folder / TRACE).read_text())
    except (OSError, ValueError):
        return {}
    return trace if isinstance(trace, dict) else {}


def unseen(number: int, manifest: Manifest) -> Job:
    """A job that has left no trace yet."""
    overrides = manifest.jobs[number]
    return Job(number, overrides, manifest.what(overrides), searched=manifest.searched, cwd=manifest.cwd)


def as_job(number: int, manifest: Manifest, folder: Path, trace: Mapping[str, Any], now: float) -> Job:
    """How a job stands by its trace; without one it is to do."""
    if not trace:
        return unseen(number, manifest)
    status = trace.get("status")
    if status == "running" and not is_alive(folder, trace, now):
        status = "killed"
    return replace(
        unseen(number, manifest),
        status=status if status in STATUSES else "killed",
        folder=folder,
        host=str(trace.get("host") or ""),
        device=str(trace.get("device") or ""),
        begun=_number(trace, "begun") or 0.0,
        seconds=_number(trace, "seconds"),
        error=str(trace.get("error", "")),
        progress=_progress(folder) if status == "running" else "",
    )


def _number(trace: Mapping[str, Any], name: str) -> float | None:
    """A number of a trace; None where there is none, for instance because a trace is damaged."""
    value = trace.get(name)
    return value if isinstance(value, int | float) else None


def is_alive(folder: Path, trace: Mapping[str, Any], now: float) -> bool:
    """Whether a running job gives signs of life, and if it is on this machine, its process is there.

    Its number alone would not do: in a container that begins anew the same low numbers come again.
    """
    if trace.get("host") == socket.gethostname() and not _runs(int(_number(trace, "pid") or 0)):
        return False
    try:
        return now - (folder / TRACE).stat().st_mtime < SILENT
    except OSError:
        return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return pid > 0


def _progress(folder: Path) -> str:
    try:
        return (folder / PULSE).read_text().strip()
    except OSError:
        return ""


def counts(jobs: Iterable[Job]) -> dict[Status, int]:
    """How many jobs stand how, without those that none do."""
    found = [job.status for job in jobs]
    return {status: found.count(status) for status in STATUSES if status in found}


def seconds_left(jobs: list[Job], now: float) -> float | None:
    """About how long a sweep still takes: what finished jobs took, for those that are left, as many at once as now.

    A job that takes longer than the mean has a tenth of it left. None where nothing runs, or nothing was finished from
    which to tell.
    """
    took = [job.seconds for job in jobs if job.status == "done" and job.seconds and job.seconds >= 1]
    running = [job for job in jobs if job.status == "running"]
    if not took or not running:
        return None
    mean = sum(took) / len(took)
    going = sum(max(mean - (now - job.begun), mean / 10) for job in running)
    return (going + mean * sum(job.status == "to do" for job in jobs)) / len(running)


def jobs_to_do(folders: Iterable[Path]) -> int:
    """How many jobs of the sweeps in or below folders have not begun, each sweep's once."""
    sweeps = {below.resolve() for folder in folders for below, names in folders_below(folder) if MANIFEST in names}
    return sum(map(_not_begun, sorted(sweeps)))


def _not_begun(folder: Path) -> int:
    """Such jobs of the sweep in a folder; a file of others may have the name of a sweep's, which is only told."""
    try:
        manifest = read_manifest(folder)
    except OneshotError as error:
        say(f"jobs that have not begun are not counted: {error}")
        return 0
    return sum(job.status == "to do" for job in jobs_of(folder, manifest))
