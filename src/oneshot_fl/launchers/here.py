"""One job after the other, in this process."""

from collections.abc import Sequence
from concurrent.futures import Future

from oneshot_fl.launchers.engine import Engine, Outcome, Task


class Here(Engine):
    """The engine that needs nothing: a job's output is the program's own, and one that is killed takes all with it."""

    name = "local"
    at_once = 1
    elsewhere = False
    pause = 0.0

    def submit(self, tasks: Sequence[Task]) -> list["Future[Outcome]"]:
        """Run them now."""
        return [_run(task) for task in tasks]

    def stop(self) -> None:
        """Nothing of it runs on."""


def _run(task: Task) -> "Future[Outcome]":
    future: Future[Outcome] = Future()
    future.set_result(task.call())
    return future
