"""The machine's cores and GPUs: one process a place, each its own pool of joblib's engine (loky).

hydra-joblib-launcher keeps all workers in one pool, and loky ends a whole pool where one of its processes dies: a job
that runs out of memory takes every other one with it. Pools of one process lose that job only.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from multiprocessing.util import Finalize
from queue import SimpleQueue

from joblib import cpu_count
from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor, process_executor

from oneshot_fl.devices import visible_devices
from oneshot_fl.launchers.cores import threads_each
from oneshot_fl.launchers.engine import Engine, Outcome, Task, check_number, work
from oneshot_fl.process import end_with
from oneshot_fl.reporting.finished import LOG

PATIENCE = 20.0
"""Seconds that jobs have to leave their checkpoint and trace once they are asked to stop."""


class Workers(Engine):
    """As many jobs at once as there are places: `jobs_per_gpu` for each GPU, on a machine without any a core each.

    Args:
        jobs_per_gpu: `trainer.jobs_per_gpu`; 0 where jobs use no GPU.
        at_once: jobs at once, where that is not to be found out.

    Raises:
        OneshotError: `at_once` is no number of jobs.
    """

    name = "joblib"
    elsewhere = False
    pause = 0.1

    def __init__(self, *, jobs_per_gpu: int = 1, at_once: int | None = None) -> None:
        check_number("hydra.launcher.at_once", at_once, "jobs", or_null=True)
        self.at_once = at_once or len(visible_devices()) * jobs_per_gpu or cpu_count()
        self._environment = threads_each(self.at_once)
        self._pools: dict[int, ProcessPoolExecutor] = {}
        """By their places, made when these get their first job: each keeps some files of the system's open."""
        Finalize(self, _end, args=(self._pools,), exitpriority=0)  # a child of multiprocessing waits for its own first
        self._free: SimpleQueue[int] = SimpleQueue()
        for place in range(self.at_once):
            self._free.put(place)
        self._pids: dict[int, Future[int]] = {}

    def submit(self, tasks: Sequence[Task]) -> list["Future[Outcome]"]:
        """Give each to a free place."""
        return [self._submit(task, self._free.get()) for task in tasks]

    def stop(self) -> None:
        """Ask the workers to stop as a terminal would, then end those that did not."""
        try:
            for pid in list(self._pids.values()):  # jobs that end meanwhile take theirs out
                if pid.done() and not pid.exception():
                    _tell(pid.result())
            deadline = time.monotonic() + PATIENCE
            while self._free.qsize() < self.at_once and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            _end(self._pools)

    def _submit(self, task: Task, place: int) -> "Future[Outcome]":
        try:
            future = self._give(task, place)
        except BrokenProcessPool:  # its process died since its last job
            del self._pools[place]
            future = self._give(task, place)
        future.add_done_callback(partial(self._left, place))
        return future

    def _give(self, task: Task, place: int) -> "Future[Outcome]":
        if place not in self._pools:
            self._pools[place] = self._pool()
        self._pids[place] = self._pools[place].submit(os.getpid)
        return self._pools[place].submit(work, task, LOG)

    def _left(self, place: int, future: "Future[Outcome]") -> None:
        """A job has ended, or its process has: then the place gets a new one with its next job."""
        self._pids.pop(place, None)
        if not future.cancelled() and isinstance(future.exception(), BrokenProcessPool):
            del self._pools[place]
        self._free.put(place)

    def _pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            max_workers=1, env=self._environment, initializer=obey, initargs=(os.getpid(),), timeout=None
        )


def obey(parent: int) -> None:
    """Make a worker leave stops to its jobs, and stop them when the program that began them is gone.

    A job leaves its checkpoint and trace then; a worker without one ends.
    loky takes a process for leaking, and begins another, once it has grown by 300 MB, as each does that loads torch.
    """
    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent, patience=PATIENCE)


def _end(pools: Mapping[int, ProcessPoolExecutor]) -> None:
    for pool in pools.values():
        pool.shutdown(wait=False, kill_workers=True)


def _tell(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
