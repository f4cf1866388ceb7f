"""The store: content-addressed results of phases, shared by all runs.

`<store>/<phase>/<key>/` holds an artifact. Writing goes to a neighbour folder that is renamed when complete, under a
file lock, so a reader never sees half an artifact and two processes never make the same one twice. An artifact that is
not what was stored under its key is set aside as `<key>.damaged` and made again, which loses nothing and never uses it.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from oneshot_fl.artifacts import Artifact, DamagedError, check_finite, fingerprint, read_artifact, write_artifact
from oneshot_fl.disk import remove, sync, writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.ledger import Meter, total

DAMAGED, LOCK, NEW, WORK = ".damaged", ".lock", ".new", ".work"
"""What lies beside artifacts: set aside, for one process at a time, half written, and half made."""


def _to_stderr(line: str) -> None:
    print(f"oneshot_fl: {line}", file=sys.stderr)


@dataclass(frozen=True)
class Store:
    """A folder of artifacts, one sub-folder per phase."""

    root: Path
    context: Mapping[str, Any] = field(default_factory=dict)
    """What every key depends on besides the phase's own inputs: versions, device, precision."""
    note: Callable[[str], None] = _to_stderr
    """Called with one line when a damaged artifact is set aside."""

    def get_or_make(
        self,
        phase: str,
        inputs: Mapping[str, Any],
        make: Callable[[Path], Artifact],
        *,
        waiting: Callable[[str], None] | None = None,
    ) -> Artifact:
        """Load the artifact that belongs to `inputs`, or `make` and store it; a second process waits and loads.

        `make` gets a work folder for checkpoints that outlives a killed process and is removed on success. `waiting`
        is called once, with what is waited for, where another process is making the same.

        Raises:
            OneshotError: the store cannot be written or read, or a tensor holds a value that is not finite.
        """
        described = _as_read({"phase": phase, "inputs": dict(inputs), "context": dict(self.context)})
        final = self.root / phase / fingerprint(described)
        found = _intact(final)
        if found is None:
            with self._locked(final, waiting):
                found = self._intact_or_set_aside(final)
                if found is None:
                    return self._make(final, described, make)
        if (left := final.with_suffix(WORK)).exists():  # by a process that was killed after the artifact was complete
            shutil.rmtree(left, ignore_errors=True)  # in a shared store it may be somebody else's
        return replace(found, from_store=True)

    @contextmanager
    def _locked(self, final: Path, waiting: Callable[[str], None] | None) -> Iterator[None]:
        with self._writing():
            final.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(final.with_suffix(LOCK))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if waiting is not None:
                    waiting(f"another process is making {final.parent.name}/{final.name} in store={self.root}")
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _intact_or_set_aside(self, final: Path) -> Artifact | None:
        try:
            return read_artifact(final) if os.path.lexists(final) else None
        except DamagedError as damage:
            aside = final.with_suffix(DAMAGED)
            with self._writing():
                remove(aside)
                os.replace(final, aside)
            self.note(f"{final} was damaged ({damage}): it is now {aside.name}, and is made again")
            return None

    def _make(self, final: Path, described: dict[str, Any], make: Callable[[Path], Artifact]) -> Artifact:
        work, fresh = final.with_suffix(WORK), final.with_suffix(NEW)
        with self._writing():
            if not work.is_dir():
                remove(work)
                work.mkdir()
        meter = Meter()
        artifact = make(work)
        cost = asdict(total([artifact.cost, meter.spent()]))
        check_finite(artifact.tensors, final.parent.name)
        try:
            with self._writing():
                remove(fresh)
                fresh.mkdir()
                write_artifact(fresh, {**described, "facts": _as_read(artifact.facts), "cost": cost}, artifact)
                os.replace(fresh, final)
                sync(final.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)
        try:
            return read_artifact(final)
        except DamagedError as damage:
            raise OneshotError(f"store={self.root}: what was just written reads back otherwise ({damage})") from damage

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with writing(f"store={self.root}"):
            yield


def open_store(root: Path, context: Mapping[str, Any]) -> Store:
    """The store at `root`, made if it is not there.

    Raises:
        OneshotError: the folder cannot be made or written.
    """
    with writing(f"store={root}"):
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    return Store(root, context)


def _as_read(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON makes of them: what was just made equals what will be loaded."""
    read: dict[str, Any] = json.loads(json.dumps(facts))
    return read


def _intact(folder: Path) -> Artifact | None:
    try:
        return read_artifact(folder)
    except DamagedError:  # or absent: decided under the lock
        return None
