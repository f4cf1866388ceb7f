"""Artifacts of a phase that do not depend on each other: one after the other here, or side by side in processes."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError

from oneshot_fl.artifacts import Artifact
from oneshot_fl.errors import OneshotError
from oneshot_fl.phases.context import Context
from oneshot_fl.process import keep_freed_memory
from oneshot_fl.store import Store, Wanted
from oneshot_fl.tracking.progress import Task


def make_all(wanted: Sequence[Wanted], steps: Sequence[int], *, context: Context, task: Task) -> list[Artifact]:
    """All artifacts in their order, loaded where the store has them.

    With `context.workers` > 1 that many processes make them, each with its share of the threads. A result depends on
    its own inputs only, so it is the same bit by bit as with one worker of as many threads.

    Args:
        wanted: what is needed; what a `make` refers to is copied to the workers.
        steps: of the task, one number for each.
        context: see there.
        task: the progress; a worker's artifact counts when it is there.

    Raises:
        OneshotError: one cannot be made, or a worker died.
    """
    done = _Counted(task, steps)
    for k in _by_workers(wanted, context):
        done.made_by_worker(k)
    found = context.store.get_or_make_all(wanted, waiting=context.progress.note, done=done)
    return [replace(one, from_store=one.from_store and k not in done.by_worker) for k, one in enumerate(found)]


class _Counted:
    """Tells the progress of artifacts in any order."""

    def __init__(self, task: Task, steps: Sequence[int]) -> None:
        self.task, self.steps = task, steps
        self.by_worker: set[int] = set()
        self.finished = 0

    def made_by_worker(self, k: int) -> None:
        """It is in the store, but was not there before."""
        self.by_worker.add(k)
        self._reach(k)

    def __call__(self, k: int, artifact: Artifact) -> None:
        """It is there."""
        if k in self.by_worker:
            return
        if artifact.from_store:
            self.task.from_store(self.steps[k])
        self._reach(k)

    def _reach(self, k: int) -> None:
        self.finished += self.steps[k]
        self.task.reach(self.finished)


def _by_workers(wanted: Sequence[Wanted], context: Context) -> list[int]:
    """Let workers make what the store lacks; the numbers of what they made."""
    missing = [k for k, one in enumerate(wanted) if not context.store.has(one)] if context.workers > 1 else []
    if len(missing) < 2:
        return []
    workers = min(context.workers, len(missing))
    threads = max(1, torch.get_num_threads() // workers)
    jobs = (delayed(_make)(context.store, wanted[k], threads) for k in missing)
    try:
        made = Parallel(n_jobs=workers, batch_size=1, pre_dispatch="n_jobs")(jobs)
    except TerminatedWorkerError as error:
        raise OneshotError(
            f"workers={context.workers}: one of them died, perhaps for want of memory; the same command resumes, "
            "workers=1 needs the least memory"
        ) from error
    return [k for k, by_worker in zip(missing, made, strict=True) if by_worker]


def _make(store: Store, wanted: Wanted, threads: int) -> bool:
    """In a worker: whether it made it; what another process is making is left to that."""
    keep_freed_memory()
    torch.set_num_threads(threads)
    artifact = store.get_or_make_if_free(wanted)
    return artifact is not None and not artifact.from_store
