"""Locks of the store: of several processes that need the same result, one makes it.

On most disks the kernel keeps the lock and frees it when its holder dies. Where it does not (network file systems
without `flock`, or with one that other machines do not see), the lock is a lease: a file that its holder touches again
and again, and that whoever waits may take over once nobody has touched it for `LEASE` seconds.
"""

import errno
import os
import re
import socket
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLease, Timeout

LEASED = ".leased"
"""A file in a store's folder: it is locked by leases. Whoever finds out writes it, so that all machines agree."""
LEASE_FILE = ".lease"
"""Takes the place of a lock's own suffix."""
LEASE = 60.0
"""Seconds."""
NO_FLOCK = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
LOCAL_ONLY = {"nfs": {"local_lock=all", "local_lock=flock", "nolock"}, "lustre": {"localflock"}}
"""Kinds of file systems, and the mount options with which a `flock` holds on one machine only."""
MOUNTS = Path("/proc/self/mountinfo")
OCTAL = re.compile(r"\\([0-7]{3})")
"""How it writes white space and backslashes in a path."""


def lock_of(path: Path, *, leased: bool) -> BaseFileLock:
    """A lock on `path`; to be kept while waiting, because it watches how long a lease has not been renewed.

    A lease has a file of its own: the empty one that a `flock` leaves behind would be a holder that never lets go.
    """
    if leased:
        return SoftFileLease(path.with_suffix(LEASE_FILE), lease_duration=LEASE)
    return FileLock(path, fallback_to_soft=False)


def is_free(lock: BaseFileLock) -> bool:
    """Take the lock if nobody holds it."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True


def needs_leases(folder: Path) -> bool:
    """Whether locks in a folder have to be leases; if so, its `LEASED` file is there afterwards."""
    mark = folder / LEASED
    if mark.exists():
        return True
    if _flock_works(folder) and not _flock_is_local(folder.resolve()):
        return False
    mark.touch()
    return True


def holder() -> str:
    """This process, as those who wait for it are told of it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _flock_works(folder: Path) -> bool:
    probe = folder / f".probe-{socket.gethostname()}-{os.getpid()}"
    try:
        with lock_of(probe, leased=False):
            return True
    except OSError as error:
        if error.errno not in NO_FLOCK:
            raise
        return False
    finally:
        probe.unlink(missing_ok=True)


def _flock_is_local(folder: Path) -> bool:
    """Whether the folder's mount says that other machines do not see a `flock`; only Linux tells."""
    if not MOUNTS.exists():
        return False
    kind, options = _mount_of(folder, MOUNTS.read_text())
    return any(kind.startswith(name) and bool(local & options) for name, local in LOCAL_ONLY.items())


def _mount_of(folder: Path, mountinfo: str) -> tuple[str, set[str]]:
    """Kind and options of the innermost mount that holds a folder; see proc(5) for the lines."""
    places = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        place = Path(OCTAL.sub(lambda byte: chr(int(byte[1], 8)), before.split()[4]))
        places[place] = kind, {*before.split()[5].split(","), *options.split(",")}
    inside = [place for place in places if folder.is_relative_to(place)]
    return places[max(inside, key=lambda place: len(place.parts))] if inside else ("", set())
