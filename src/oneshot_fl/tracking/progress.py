"""Progress of the phases: bars on a terminal, one line per finished phase elsewhere."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars


class Task:
    """One phase's bar."""

    def __init__(self, bars: Bars, name: str, total: int, unit: str) -> None:
        self._bars, self._name, self._unit, self._total = bars, name, unit, total
        self._begun, self._stored = time.perf_counter(), 0
        self._id = bars.add_task(name, total=total, detail="")

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

    def finish(self, detail: str = "") -> None:
        """The phase is over."""
        self.reach(self._total, detail)
        if not self._bars.console.is_terminal:
            self._bars.console.print(f"{self._name}: {self._report()} {detail}".rstrip())

    def __reduce__(self) -> tuple[Callable[[str, int, str], "Task"], tuple[str, int, str]]:
        return _silent, (self._name, self._total, self._unit)  # in another process nobody would see it

    def _report(self) -> str:
        """What was done in what time, and what was found in the store, which takes no time worth telling."""
        if self._total and self._stored == self._total:
            return f"{self._total} {self._unit}, from store"
        seconds = f"in {time.perf_counter() - self._begun:.1f} s"
        if not self._stored:
            return f"{self._total} {self._unit} {seconds}"
        return f"{self._total - self._stored} of {self._total} {self._unit} {seconds}, the rest from store"


def _silent(name: str, total: int, unit: str) -> Task:
    return Progress(Console(quiet=True)).task(name, total, unit)


class Progress:
    """All bars of a run; a context manager."""

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description:>16}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def task(self, name: str, total: int, unit: str) -> Task:
        """A new bar of `total` steps, counted in `unit`."""
        return Task(self._bars, name, total, unit)

    def note(self, text: str) -> None:
        """A line for the user above the bars."""
        self._bars.console.print(f"note: {text}")

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()
