"""Progress of the phases: bars on a terminal; elsewhere a line per finished phase, and one a minute of the others."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO
from uuid import uuid4

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from oneshot_fl.process import UNREAD

PULSE = "progress.txt"
"""In the folder of a run that is on: the line that tells how far it is, for whoever looks from outside."""
RENEWED = 5.0
"""Seconds between two such lines."""
HEARTBEAT = 60.0
"""Seconds between two lines of a phase where there is no terminal to show its bar."""


def terminal(file: IO[str] | None = None) -> Console:
    """Where a run tells how it stands, standard output unless another file is given.

    What it prints is what others have named (files, tensors, classes), so brackets and colons mean nothing there.
    """
    return _Terminal(file=file, markup=False, emoji=False)


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads any more, as behind `head`: the run is stopped, with the exit code that shells have for it."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        sys.exit(UNREAD)


class Task:
    """One phase's bar."""

    def __init__(self, bars: Bars, name: str, total: int, unit: str) -> None:
        self._bars, self._name, self._unit, self._total = bars, name, unit, total
        self._begun, self._stored = time.perf_counter(), 0
        self._id = bars.add_task(name, total=total, detail="")
        self._before = 0
        self._elsewhere: Path | None = None
        self.over = False

    def advance(self, detail: str = "") -> None:
        """One step more."""
        self._bars.update(self._id, advance=1, detail=detail)

    def reach(self, completed: int, detail: str = "") -> None:
        """At least `completed` steps are done, some of them perhaps in an earlier run."""
        self._bars.update(self._id, completed=completed, detail=detail)

    def from_store(self, steps: int) -> None:
        """That many of the steps were not taken now: an earlier run, or another one, has left what they make."""
        self._stored += steps

    @property
    def completed(self) -> int:
        """Steps done so far."""
        return int(self._bars.tasks[self._id].completed)

    def told(self) -> str:
        """How far it is: `distillation: 37 of 200 rounds after 312 s, accuracy 0.532`."""
        detail = str(self._bars.tasks[self._id].fields["detail"])
        seconds = time.perf_counter() - self._begun
        far = f"{self._name}: {self.completed} of {self._total} {self._unit} after {seconds:.0f} s"
        return f"{far}, {detail}" if detail else far

    def finish(self) -> None:
        """The phase is over."""
        self.over = True
        self.reach(self._total)
        if not self._bars.console.is_terminal:
            self._bars.console.print(f"{self._name}: {self._report()}".rstrip(), soft_wrap=True)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While the block runs, steps that other processes of this machine take with a copy of it count too."""
        with TemporaryDirectory(prefix="oneshot-fl-progress-", ignore_cleanup_errors=True) as folder:
            self._before, self._elsewhere = self.completed, Path(folder)
            try:
                yield
            finally:
                self._elsewhere = None

    def look(self) -> None:
        """Count what other processes have done.

        Raises:
            OSError: they cannot be asked.
        """
        if folder := self._elsewhere:  # which may be gone in a moment
            steps = sum(file.stat().st_size for file in folder.iterdir())
            self._bars.update(self._id, completed=max(self.completed, self._before + steps))

    def __reduce__(self) -> tuple[type["TaskElsewhere"], tuple[Path | None]]:
        return TaskElsewhere, (self._elsewhere,)

    def _report(self) -> str:
        """What was done in what time, and what was found in the store, which takes no time worth telling."""
        if self._total and self._stored == self._total:
            return f"{self._total} {self._unit}, from store"
        seconds = f"in {time.perf_counter() - self._begun:.1f} s"
        if not self._stored:
            return f"{self._total} {self._unit} {seconds}"
        return f"{self._total - self._stored} of {self._total} {self._unit} {seconds}, the rest from store"


class TaskElsewhere:
    """The task as a copy in another process has it: a file of as many bytes as it has taken steps.

    Args:
        folder: where that file goes; None: nobody looks.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / uuid4().hex
        self.completed = 0

    def advance(self, detail: str = "") -> None:
        """One step more."""
        self.reach(self.completed + 1)

    def reach(self, completed: int, detail: str = "") -> None:
        """At least `completed` steps are done."""
        new = max(0, completed - self.completed)
        self.completed += new
        if self._file is not None:
            with suppress(OSError), self._file.open("ab") as file:  # on another machine there is no such folder
                file.write(bytes(new))


class Progress:
    """All bars of a run; a context manager."""

    def __init__(self, console: Console, folder: Path | None = None) -> None:
        self._bars = Bars(
            TextColumn("{task.description:>16}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: list[Task] = []
        self._pulse = None if folder is None else folder / PULSE
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="progress", daemon=True)

    def task(self, name: str, total: int, unit: str) -> Task:
        """A new bar of `total` steps, counted in `unit`."""
        self._tasks.append(Task(self._bars, name, total, unit))
        return self._tasks[-1]

    def note(self, text: str) -> None:
        """A line for the user above the bars."""
        self._bars.console.print(f"note: {text}", soft_wrap=True)

    def now(self) -> str:
        """How far the phase is that is on; empty between two of them."""
        return next((task.told() for task in reversed(self._tasks) if not task.over), "")

    def _beat(self) -> None:
        """Say every few seconds in the run's folder, and once a minute where there is no terminal, how far it is."""
        said = time.monotonic()
        while not self._over.wait(RENEWED):
            for task in self._tasks:
                with suppress(OSError):  # the task may end meanwhile
                    task.look()
            line = self.now()
            with suppress(OSError):  # a disk may fail for a moment, and the next line may get there
                self._renew(line)
            if line and not self._bars.console.is_terminal and time.monotonic() - said >= HEARTBEAT:
                said = time.monotonic()
                with suppress(OSError):
                    self._bars.console.print(line, soft_wrap=True)

    def _renew(self, line: str) -> None:
        if self._pulse is not None and self._pulse.parent.is_dir():
            self._pulse.write_text(f"{line}\n")

    def __enter__(self) -> "Progress":
        self._bars.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._pulse is not None:
            with suppress(OSError):  # nobody reads it of a run that is over
                self._pulse.unlink()
        if not self._bars.disable:  # rich below 14.3 ends even those that it never showed, by an empty line
            self._bars.stop()
