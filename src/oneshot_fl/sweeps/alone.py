"""One process at a time in the folder of a run, or of an aggregation."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oneshot_fl.disk import make_folder, writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.locks import is_free, lock_of, needs_leases
from oneshot_fl.process import say
from oneshot_fl.sweeps.state import read_trace

LOCK = ".lock"
"""A file of such a folder: whoever works there holds it."""


@contextmanager
def alone_in(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Inside the block no other process works in the folder of a result; one that is there is told of and waited for.

    Args:
        wait: else a folder that somebody works in is an error.

    Raises:
        OneshotError: the folder cannot be written.
    """
    make_folder(folder)
    with writing(str(folder)):
        lock = lock_of(folder / LOCK, leased=needs_leases(folder))
        free = is_free(lock)
    if not free:
        held = f"{folder}: {_holder(folder)} makes a result there"
        if not wait:
            raise OneshotError(f"{held}; wait for it to end, or choose another folder")
        say(f"{held}; waiting for it to end")
        with writing(str(folder)):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _holder(folder: Path) -> str:
    """Who works there, as far as its trace has come to tell."""
    trace = read_trace(folder)
    told = trace.get("status") == "running" and {"pid", "host"} <= trace.keys()
    return f"process {trace['pid']} on {trace['host']}" if told else "another process"
