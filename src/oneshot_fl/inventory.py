"""What a store holds and what of it may go: behind `oneshot-fl store`."""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from oneshot_fl.artifacts import DamagedError, read_artifact, read_manifest
from oneshot_fl.disk import reason, remove, writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.locks import LEASE_FILE, LEASED, is_free, lock_of
from oneshot_fl.runs import RUNS, remembered_run
from oneshot_fl.store import DAMAGED, LOCK

KEY = re.compile(r"[0-9a-f]{20}")
DAY = 24 * 60 * 60
TOLD = ("method", "model", "models", "student", "generator", "kind", "client", "data")
"""Inputs of phases that tell a reader what an artifact is."""
Kind = Literal["artifact", "damaged", "leftover", "run"]


@dataclass(frozen=True)
class Holding:
    """One entry of a phase's folder."""

    path: Path
    kind: Kind
    """Leftovers are work folders, half written artifacts, locks, and memories of runs whose folders are gone."""
    bytes: int
    made: float
    """Seconds since 1970."""
    what: str

    @property
    def phase(self) -> str:
        """The phase that it belongs to."""
        return self.path.parent.name

    @property
    def key(self) -> str:
        """The key that it belongs to."""
        return self.path.name.partition(".")[0]

    @property
    def is_lock(self) -> bool:
        """Whether it is only what processes hold while they make or read what has its key."""
        return self.path.suffix in (LOCK, LEASE_FILE)

    def days(self, now: float) -> float:
        """Its age."""
        return (now - self.made) / DAY


def holdings(root: Path) -> list[Holding]:
    """Everything in a store, by phase and then by age, the oldest first; what is not the store's own is left alone.

    Raises:
        OneshotError: there is no such folder, it cannot be read, or what it holds is no store's.
    """
    if not root.is_dir():
        raise OneshotError(f"store={root}: there is no such folder; name another one with --store DIR")
    try:
        entries = list(_entries(root))  # listed once: runs write meanwhile
        found = [_holding(path) for path in entries if KEY.fullmatch(path.name.partition(".")[0])]
        other = not found and (bool(entries) or _has_files(root))
    except OSError as error:
        raise OneshotError(f"store={root}: cannot be read ({reason(error)})") from error
    if other:
        raise OneshotError(f"store={root}: the folder holds no store; name one that runs have written to, --store DIR")
    return sorted(filter(None, found), key=lambda one: (one.phase, one.made, one.path.name))


def _entries(root: Path) -> Iterator[Path]:
    for phase in root.iterdir():
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # gone, or no folder of the store's
            yield from phase.iterdir()


def _has_files(root: Path) -> bool:
    """Whether files lie right in a folder; in a store there are only the folders of its phases."""
    return any(path.name != LEASED and not path.is_dir() for path in root.iterdir())


def _holding(path: Path) -> Holding | None:
    """None where it has gone since it was listed: runs write to the store meanwhile."""
    try:
        kind, what = _kind_of(path)
        return Holding(path, kind, _size_of(path), path.lstat().st_mtime, what)
    except FileNotFoundError:
        return None


def _size_of(path: Path) -> int:
    """Of a file, or of all files in a folder; those that vanish meanwhile have none."""
    inside = [Path(place, name) for place, _, names in os.walk(path) for name in names]
    total = 0
    for file in inside if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total


def _kind_of(path: Path) -> tuple[Kind, str]:
    """Of an entry, and what it is."""
    if path.parent.name == RUNS:
        return _kind_of_memory(path)
    if path.suffix:
        return "damaged" if path.suffix == DAMAGED else "leftover", path.suffix[1:]
    try:
        return "artifact", described(read_manifest(path)["inputs"])
    except (DamagedError, FileNotFoundError, NotADirectoryError) as damage:
        path.lstat()  # what has gone is not damaged
        return "damaged", reason(damage)


def _kind_of_memory(file: Path) -> tuple[Kind, str]:
    """The kind of what remembers a run, and the run's folder."""
    try:
        folder = remembered_run(file)
    except ValueError as damage:
        return "damaged", reason(damage)
    return ("leftover", f"{folder} is gone") if _is_gone(folder) else ("run", str(folder))


def _is_gone(folder: Path) -> bool:
    """Not where it only cannot be looked at, as another user's in a shared store."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def described(inputs: Mapping[str, Any]) -> str:
    """What of a phase's inputs a reader knows it by: the names of method and models, whose client, which data."""
    told = ((key, _name(inputs[key])) for key in TOLD if key in inputs)
    return " ".join(f"{key}={name}" for key, name in told if name)


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name") or str(value.get("_target_", "")).rpartition(".")[2])
    if isinstance(value, list):
        return "+".join(dict.fromkeys(filter(None, map(_name, value))))
    return value[:12] if isinstance(value, str) else str(value)


def sweep(root: Path, *, phase: str | None, older_than: float | None, dry_run: bool) -> Iterator[Holding]:
    """Remove leftovers that nobody holds and damaged artifacts, and yield each.

    That runs are done is forgotten where `runs` is named as the phase, never by age alone.

    Args:
        phase: only this one's, and then its whole artifacts, or its memories of runs, too.
        older_than: days; whole artifacts that were made longer ago go too, and nothing younger does.
        dry_run: only tell.

    Raises:
        OneshotError: the store cannot be read or written, or has no such phase.
    """
    found = holdings(root)
    if phase is not None and phase not in (phases := sorted({one.phase for one in found})):
        others = f"; choose from {', '.join(phases)}" if phases else ", nor of any other"
        raise OneshotError(f"--phase {phase}: store={root} holds nothing of it{others}")
    chosen = [one for one in found if phase == one.phase or (phase is None and one.kind != "run")]
    old = [one for one in chosen if older_than is None or one.days(time.time()) > older_than]
    whole = phase is not None or older_than is not None
    for _, group in groupby(sorted(old, key=lambda one: one.path), key=lambda one: (one.phase, one.key)):
        yield from _sweep_key(list(group), whole=whole, dry_run=dry_run)


def _sweep_key(found: list[Holding], *, whole: bool, dry_run: bool) -> Iterator[Holding]:
    """What of one key goes, its locks at last; nothing where a process holds it."""
    with _unheld(found[0].path.with_suffix(LOCK)) as free:
        going = [one for one in found if free and (whole or one.kind != "artifact" or _is_damaged(one.path))]
        for one in sorted(going, key=lambda one: one.is_lock):
            if not dry_run:
                with writing(f"store={one.path.parents[1]}"), suppress(FileNotFoundError):  # who made it removes it too
                    remove(one.path)
            yield one


def _is_damaged(folder: Path) -> bool:
    try:
        read_artifact(folder)
    except DamagedError:
        return True
    return False


@contextmanager
def _unheld(path: Path) -> Iterator[bool]:
    """Whether nobody holds a lock, which is held inside the block; where there is none, nobody does."""
    lock = lock_of(path, leased=(path.parents[1] / LEASED).exists())
    if not Path(lock.lock_file).exists():
        yield True
        return
    with writing(f"store={path.parents[1]}"):
        free = is_free(lock)
    try:
        yield free
    finally:
        lock.release()


def size(holdings: Iterable[Holding]) -> str:
    """How much space they take, in decimal units."""
    total = float(sum(one.bytes for one in holdings))
    for unit in ("B", "kB", "MB", "GB"):
        if total < 1000:
            return f"{total:.0f} {unit}" if unit == "B" else f"{total:.1f} {unit}"
        total /= 1000
    return f"{total:.1f} TB"
