"""The store: content-addressed results of phases, shared by all runs.

`<store>/<phase>/<key>/` holds an artifact. Writing goes to a neighbour folder that is renamed when complete, under a
lock, so a reader never sees half an artifact and two processes never make the same one twice. An artifact that is
not what was stored under its key is set aside as `<key>.damaged`, where it is kept and never used, and made again.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import BaseFileLock

from oneshot_fl.artifacts import Artifact, DamagedError, check_finite, fingerprint, read_artifact, write_artifact
from oneshot_fl.disk import remove, replacing, sync, writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.ledger import Meter, total
from oneshot_fl.locks import holder, is_free, lock_of, needs_leases
from oneshot_fl.process import say

DAMAGED, LOCK, NEW, WORK = ".damaged", ".lock", ".new", ".work"
"""What lies beside artifacts: set aside, for one process at a time, half written, and half made."""
HOLDER = "made-by"
"""A file among what is half made: who is at it."""
POLL = 0.2
"""Seconds between two looks at what another process is making."""


@dataclass(frozen=True)
class Wanted:
    """An artifact that somebody needs, and how it is made if nobody has made it."""

    phase: str
    inputs: Mapping[str, Any]
    """Everything that it depends on besides the store's context."""
    make: Callable[[Path], Artifact]
    """Gets a work folder for checkpoints that outlives a killed process and is removed on success."""


@dataclass(frozen=True)
class Store:
    """A folder of artifacts, one sub-folder per phase."""

    root: Path
    context: Mapping[str, Any] = field(default_factory=dict)
    """What every key depends on besides the phase's own inputs: versions, device, precision."""
    note: Callable[[str], None] = say
    """Called with one line when a damaged artifact is set aside."""
    leased: bool = False
    """Whether locks are leases (`locks`)."""

    def get_or_make(
        self,
        phase: str,
        inputs: Mapping[str, Any],
        make: Callable[[Path], Artifact],
        *,
        waiting: Callable[[str], None] | None = None,
    ) -> Artifact:
        """Load one artifact, or make and store it; see `Wanted` and `get_or_make_all`."""
        return self.get_or_make_all([Wanted(phase, inputs, make)], waiting=waiting)[0]

    def get_or_make_all(
        self,
        wanted: Sequence[Wanted],
        *,
        waiting: Callable[[str], None] | None = None,
        done: Callable[[int, Artifact], None] | None = None,
    ) -> list[Artifact]:
        """Load artifacts, or make and store them, in their order.

        What another process is making is left for last, so that several processes that need the same share the work;
        if that process dies, it is made here.

        Args:
            wanted: what is needed.
            waiting: called once, with what is waited for, when nothing is left but what others are making.
            done: called with the number and the artifact as soon as one is there.

        Raises:
            OneshotError: the store cannot be written or read, or a tensor holds a value that is not finite.
        """
        places = [self._place(one) for one in wanted]
        found: dict[int, Artifact] = {}
        while len(found) < len(wanted):
            before = len(found)
            for k, place in enumerate(places):
                if k not in found and (artifact := self._get_or_make_now(place, wanted[k].make)) is not None:
                    found[k] = artifact
                    if done is not None:
                        done(k, artifact)
            if len(found) == before:
                if waiting is not None:
                    waiting(self._by_another(next(place for k, place in enumerate(places) if k not in found)))
                    waiting = None
                time.sleep(POLL)
        return [found[k] for k in range(len(wanted))]

    def get_or_make_if_free(self, wanted: Wanted) -> Artifact | None:
        """Like `get_or_make_all` for one artifact, but None where another process is making it: nobody waits."""
        return self._get_or_make_now(self._place(wanted), wanted.make)

    def has(self, wanted: Wanted) -> bool:
        """Whether an artifact is there; only who loads it finds out whether it is intact."""
        return self._place(wanted).final.exists()

    def _place(self, wanted: Wanted) -> "_Place":
        described = _as_read({"phase": wanted.phase, "inputs": dict(wanted.inputs), "context": dict(self.context)})
        final = self.root / wanted.phase / fingerprint(described)
        return _Place(described, final, lock_of(final.with_suffix(LOCK), leased=self.leased))

    def _get_or_make_now(self, place: "_Place", make: Callable[[Path], Artifact]) -> Artifact | None:
        """None where another process holds the lock."""
        found = _intact(place.final)
        if found is None:
            with self._writing():
                place.final.parent.mkdir(parents=True, exist_ok=True)
                if not is_free(place.lock):
                    return None
            try:
                found = self._intact_or_set_aside(place.final)
                if found is None:
                    return self._make(place.final, place.described, make)
            finally:
                place.lock.release()
        if (left := place.final.with_suffix(WORK)).exists():  # by a process killed after the artifact was complete
            shutil.rmtree(left, ignore_errors=True)  # in a shared store it may be somebody else's
        return replace(found, from_store=True)

    def _by_another(self, place: "_Place") -> str:
        """What is waited for, in words."""
        try:
            name = (place.final.with_suffix(WORK) / HOLDER).read_text()
        except OSError:  # it has not said so yet, or has ended since
            name = "another process"
        return f"{name} is making {place.final.parent.name}/{place.final.name} in store={self.root}"

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
        work, fresh = final.with_suffix(WORK), final.with_suffix(f"{NEW}-{uuid4().hex[:12]}")
        with self._writing():
            if not work.is_dir():
                remove(work)
                work.mkdir()
            with replacing(work / HOLDER) as new:
                new.write_text(holder())
        meter = Meter()
        try:
            artifact = make(work)
        except OneshotError:
            if (found := _intact(final)) is None:  # unless whoever took over an expired lease is done, work and all
                raise
            return replace(found, from_store=True)
        cost = asdict(total([artifact.cost, meter.spent()]))
        check_finite(artifact.tensors, final.parent.name)
        try:
            with self._writing():
                fresh.mkdir()
                write_artifact(fresh, {**described, "facts": _as_read(artifact.facts), "cost": cost}, artifact)
                _move(fresh, final)
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


@dataclass(frozen=True)
class _Place:
    """Where an artifact belongs."""

    described: dict[str, Any]
    """What makes its key."""
    final: Path
    lock: BaseFileLock


def open_store(root: Path, context: Mapping[str, Any]) -> Store:
    """The store at `root`, made if it is not there.

    Raises:
        OneshotError: the folder cannot be made or written.
    """
    with writing(f"store={root}"):
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
        return Store(root, context, leased=needs_leases(root))


def _as_read(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON makes of them: what was just made equals what will be loaded."""
    read: dict[str, Any] = json.loads(json.dumps(facts))
    return read


def _move(fresh: Path, final: Path) -> None:
    """To its place, unless whoever took over an expired lease has put the same there, perhaps a moment ago."""
    try:
        os.replace(fresh, final)
    except OSError:
        if _intact(final) is None:
            raise
    sync(final.parent)


def _intact(folder: Path) -> Artifact | None:
    try:
        return read_artifact(folder)
    except DamagedError:  # or absent: decided under the lock
        return None
