"""What a launcher hands to an engine, what it gets back, and what every engine can do."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from oneshot_fl.errors import OneshotError
from oneshot_fl.process import keep_freed_memory, share_the_cores, stoppable

STREAMS = (1, 2)
"""Where a process prints."""
Ending = Literal["done", "failed", "interrupted", "died"]


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    status: Ending
    value: float | None = None
    """What sweepers that search optimise."""
    error: str = ""
    mistake: bool = False
    """Whether it failed for a mistake in the input, which is one line and needs no traceback."""


@dataclass(frozen=True)
class Task:
    """One job, ready to be sent to another process."""

    number: int
    overrides: tuple[str, ...]
    folder: Path
    """Absolute."""
    call: Callable[[], Outcome]
    """The job itself; cloudpickle takes it anywhere."""
    cwd: str
    attempt: int = 1


class Pending(Protocol):
    """A job that an engine has taken; a `concurrent.futures.Future` is one."""

    def done(self) -> bool:
        """Whether it has ended, or the process that ran it has."""

    def result(self) -> Outcome:
        """How it ended; raises whatever the engine does where the process died."""


class Engine(Protocol):
    """Where jobs run."""

    name: str
    at_once: int
    """How many it takes before one has ended; fewer, perhaps, once it has taken some."""
    elsewhere: bool
    """Whether jobs run on other machines, which may compute otherwise than this one."""
    pause: float
    """Seconds between two looks at its running jobs."""

    def submit(self, tasks: Sequence[Task]) -> Sequence[Pending]:
        """Take some jobs, at most as many as there is room for."""

    def stop(self) -> None:
        """Ask running jobs to end, and wait a moment for it; jobs in a queue stay there."""

    def waits_for(self) -> str:
        """Why jobs that it was given have not begun, in a few words; nothing unless it has a queue."""
        return ""


def check_number(key: str, value: object, of: str, *, or_null: bool = False) -> None:
    """Refuse what is no number of what a key counts.

    Raises:
        OneshotError: it is no whole number of at least 1, nor null where that is allowed.
    """
    if (value is None and or_null) or (type(value) is int and value > 0):
        return
    raise OneshotError(f"{key}={value}: must be a number of {of}, at least 1{', or null' if or_null else ''}")


def work(task: Task, log: str) -> Outcome:
    """Run one job in a process of an engine that goes on with others: a stop is an outcome too."""
    try:
        return work_or_exit(task, log)
    except SystemExit as end:
        return Outcome("interrupted", error=f"stopped (exit code {end.code}); the same command resumes")


def work_or_exit(task: Task, log: str) -> Outcome:
    """Run one job in a process of its own, quiet here, its output in its folder; a stop ends the process."""
    os.chdir(task.cwd)
    share_the_cores()
    keep_freed_memory()
    task.folder.mkdir(parents=True, exist_ok=True)
    with _into(task.folder / log), stoppable():
        return task.call()


@contextmanager
def _into(file: Path) -> Iterator[None]:
    """What this process and its libraries print goes to the end of a file."""
    kept = [os.dup(number) for number in STREAMS]
    with file.open("a", buffering=1, errors="backslashreplace") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            for number in STREAMS:
                os.dup2(log.fileno(), number)
            yield
        finally:
            for number, before in zip(STREAMS, kept, strict=True):
                os.dup2(before, number)
                os.close(before)
