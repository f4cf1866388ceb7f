"""Artifacts of a phase that do not depend on each other: made one after the other, by processes, or by Ray."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from oneshot_fl.artifacts import Artifact
from oneshot_fl.errors import OneshotError
from oneshot_fl.ledger import beside_others
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.keyed import OtherCodeError
from oneshot_fl.phases.ray_helpers import helped, on_ray
from oneshot_fl.phases.trainer import TrainerSettings, multiply_as
from oneshot_fl.process import end_with, keep_freed_memory
from oneshot_fl.store import Store, Wanted
from oneshot_fl.tracking.progress import Task

PATIENCE = 5.0
"""Seconds that a worker has to end once its job is gone."""


def make_all(wanted: Sequence[Wanted], steps: Sequence[int], *, context: Context, task: Task) -> list[Artifact]:
    """All artifacts in their order, loaded where the store has them.

    With `context.workers` > 1 that many processes make them, each with its share of the threads, which this process
    has too for what is left to it; in a job on Ray, the job itself and tasks on the cluster's machines, each with as
    many threads as the job. A result depends on its own inputs only, so it is the same bit by bit as with one worker of
    as many threads, whatever the store had of the others. All of them multiply matrices as the Trainer's settings say,
    also what they compute before they make a Trainer.

    Args:
        wanted: what is needed; what a `make` refers to is copied to the workers.
        steps: of the task, one number for each.
        context: see there.
        task: the progress, in which what workers do counts as they do it; a task of a cluster tells nothing before its
            artifact is there.

    Raises:
        OneshotError: one cannot be made, or a worker died.
    """
    store, note = context.store, context.progress.note
    wanted = [replace(one, make=partial(_multiplying_as, context.trainer, one.make)) for one in wanted]
    workers = min(context.workers, len(wanted))
    missing = [k for k, one in enumerate(wanted) if not store.has(one)] if workers > 1 else []
    done, ray = _Counted(task, steps), on_ray()
    with ExitStack() as around:
        if workers > 1 and not ray:
            around.enter_context(_threads_of_one_among(workers))
        if len(missing) > 1 and ray:
            done.for_this_job.update(missing)
            around.enter_context(helped([wanted[k] for k in missing], store, min(workers, len(missing)) - 1))
        elif len(missing) > 1:
            done.reach(set(range(len(wanted))).difference(missing))
            with task.shared():
                made = _by_workers(wanted, missing, context)
            done.for_this_job.update(made)
            done.reach(made)
        found = store.get_or_make_all(wanted, waiting=note, done=done)
    return [replace(one, from_store=one.from_store and k not in done.for_this_job) for k, one in enumerate(found)]


def _multiplying_as(settings: TrainerSettings, make: Callable[[Path], Artifact], work: Path) -> Artifact:
    """Whoever makes it: a process that is new has torch's own precision, and one of an earlier run that run's."""
    multiply_as(settings)
    return make(work)


class _Counted:
    """Tells the progress of artifacts in any order."""

    def __init__(self, task: Task, steps: Sequence[int]) -> None:
        self.task, self.steps = task, steps
        self.for_this_job: set[int] = set()
        """What others made because this job asked for it: read from the store, but not there before."""
        self.reached: set[int] = set()

    def __call__(self, k: int, artifact: Artifact) -> None:
        """It is there."""
        if artifact.from_store and k not in self.for_this_job:
            self.task.from_store(self.steps[k])
        self.reach([k])

    def reach(self, numbers: Iterable[int]) -> None:
        """Their steps are done."""
        self.reached.update(numbers)
        self.task.reach(sum(self.steps[each] for each in self.reached))


def _by_workers(wanted: Sequence[Wanted], missing: Sequence[int], context: Context) -> list[int]:
    """Let workers make what the store lacks, each with this process's threads; the numbers of what they made."""
    threads, job = torch.get_num_threads(), os.getpid()
    jobs = [delayed(_make)(context.store, wanted[k], threads, job) for k in missing]
    workers = min(context.workers, len(missing))
    pool = Parallel(n_jobs=workers, backend="loky", batch_size=1, pre_dispatch="n_jobs")  # threads share random draws
    try:
        made = _by_up_to_date(pool, jobs)
    except TerminatedWorkerError as error:
        raise OneshotError(
            f"workers={context.workers}: one of them died, perhaps for want of memory; the same command resumes, "
            "workers=1 needs the least memory"
        ) from error
    except BrokenProcessPool as error:
        raise OneshotError(
            f"workers={context.workers}: one of them cannot load what it is to make; put code of your own where a new "
            "Python finds it, or set workers=1"
        ) from error
    return [k for k, by_worker in zip(missing, made, strict=True) if by_worker]


@contextmanager
def _threads_of_one_among(workers: int) -> Iterator[None]:
    """Inside the block this process has one's share of its threads: results depend on it by rounding."""
    all_of_them = torch.get_num_threads()
    torch.set_num_threads(max(1, all_of_them // workers))
    try:
        yield
    finally:
        torch.set_num_threads(all_of_them)


def _by_up_to_date(pool: Parallel, jobs: Sequence[Any]) -> list[bool]:
    """What each job returns; by new workers where those of an earlier run know other code, or not where it lies."""
    try:
        return pool(jobs)
    except TerminatedWorkerError:
        raise
    except (OtherCodeError, BrokenProcessPool):
        get_reusable_executor().shutdown(wait=True)
        return pool(jobs)


def _make(store: Store, wanted: Wanted, threads: int, job: int) -> bool:
    """In a worker of the process `job`: whether it made it; what another process is making is left to that."""
    end_with(job, patience=PATIENCE)
    keep_freed_memory()
    torch.set_num_threads(threads)
    with beside_others():
        artifact = store.get_or_make_if_free(wanted)
    return artifact is not None and not artifact.from_store
