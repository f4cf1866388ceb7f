"""`sweep.json`: which jobs a sweep has, and the command that began it."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from oneshot_fl.config.words import reading
from oneshot_fl.disk import make_folder, write_atomically
from oneshot_fl.errors import OneshotError

MANIFEST = "sweep.json"
SCHEMA = 1


@dataclass(frozen=True)
class Manifest:
    """A sweep's jobs and its command."""

    jobs: Mapping[int, tuple[str, ...]]
    """Each job's overrides by its number."""
    launcher: str = "local"
    sweeper: str = "BasicSweeper"
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv[1:]))
    """The words behind `python -m oneshot_fl`."""
    cwd: str = field(default_factory=os.getcwd)
    began: float = field(default_factory=lambda: round(time.time(), 3))
    schema: int = SCHEMA

    def what(self, overrides: Sequence[str]) -> str:
        """A job's overrides without those that all jobs have."""
        return " ".join(each for each in overrides if each not in self._alike) or words(overrides)

    @cached_property
    def _alike(self) -> set[str]:
        """The overrides that all jobs have, where there are several; no field, so it is not written."""
        return set.intersection(*map(set, self.jobs.values())) if len(self.jobs) > 1 else set()

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """The words of the command that say where its configuration is read from: a job on its own needs them too."""
        return tuple(reading(self.command))

    def write(self, folder: Path) -> None:
        """Leave it in a sweep's folder.

        Raises:
            OneshotError: the folder cannot be written.
        """
        make_folder(folder)
        write_atomically(folder / MANIFEST, json.dumps(asdict(self), indent=1))


def read_manifest(folder: Path) -> Manifest:
    """A sweep's jobs and its command.

    Raises:
        OneshotError: there is no sweep in the folder, or not what this version writes.
    """
    file = folder / MANIFEST
    try:
        told = json.loads(file.read_text())
        jobs = {int(number): tuple(overrides) for number, overrides in told.pop("jobs").items()}
        return Manifest(**{**told, "jobs": jobs, "command": tuple(told["command"])})
    except OSError as error:
        raise OneshotError(f"{folder}: holds no {MANIFEST}; give the folder of a sweep{_below(folder)}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OneshotError(f"{file}: not what this version writes ({error!r}); start the sweep again") from error


def extended(folder: Path, new: Manifest) -> Manifest:
    """The manifest of a sweep that `new` jobs join: begun before in the same folder, or with a sweeper's next batch.

    Its command is always one that makes all its jobs, so that whatever fails can be run again.
    """
    if not (folder / MANIFEST).exists():
        return new
    before = read_manifest(folder)
    if changed := [number for number in before.jobs.keys() & new.jobs if before.jobs[number] != new.jobs[number]]:
        number = min(changed)
        raise OneshotError(
            f"hydra.sweep.dir={folder}: job {number} of the sweep there is {words(before.jobs[number])}, not "
            f"{words(new.jobs[number])}; give another sweep another folder"
        )
    if new.jobs.keys() < before.jobs.keys():
        return before
    return replace(new, jobs={**before.jobs, **new.jobs}, began=before.began)


def words(overrides: Sequence[str]) -> str:
    """Overrides as they are told."""
    return " ".join(overrides) or "no overrides"


def _below(folder: Path) -> str:
    """The newest sweep in a folder of sweeps, where multirun has them: `<folder>/<date>/<time>`."""
    found = [path for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{MANIFEST}")]
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    return " (hydra.sweep.dir)" if newest is None else f", the newest below it is {newest.parent}"
