"""Slurm, by submitit: one array job for all that is not done; and the same on this machine, to try it out.

hydra-submitit-launcher would queue finished jobs too, and say nothing until all have ended.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import JobPaths
from submitit.helpers import Checkpointable, DelayedSubmission

from oneshot_fl.config.rules import check_value
from oneshot_fl.devices import VISIBLE, visible_devices
from oneshot_fl.disk import writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.launchers.cores import threads_each
from oneshot_fl.launchers.engine import Outcome, Task, check_number, work_or_exit
from oneshot_fl.launchers.slurm_states import Accounts, watcher, why_waiting
from oneshot_fl.process import say
from oneshot_fl.reporting.finished import LOG
from oneshot_fl.values import CountOrZero

OTHERS = {
    "gpus_per_node": CountOrZero | None,
    "setup": list[str] | None,
    "additional_parameters": dict[str, Any] | None,
}
"""What sbatch's parameters must be that submitit hands on, or stumbles over, as they are."""


class Requeued(Checkpointable):
    """A job that goes back into the queue when its time is up or its place is wanted, and goes on from the store.

    A result would tell the launcher that it has ended, so a stop leaves none.
    """

    def __call__(self, task: Task) -> Outcome:
        """Run it."""
        return work_or_exit(task, LOG)

    def checkpoint(self, *args: Any, **kwargs: Any) -> DelayedSubmission:
        """Go back as it is; the stop that Slurm sends to what is queued again must not break into that."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return super().checkpoint(*args, **kwargs)


class Slurm:
    """As many jobs at once as Slurm gives places.

    Args:
        jobs_per_gpu: `trainer.jobs_per_gpu`; Slurm deals out whole devices, so no more than 1.
        folder: for scripts, pickles and logs, on a disk that all nodes see.
        array: jobs of one array; Slurm's MaxArraySize, 1001 unless a site says otherwise, is above it.
        requeues: how many times a job goes back because its time is up, before it has failed.
        parameters: sbatch's, by submitit's names: `partition`, `time`, `cpus_per_task`, `gpus_per_node`, ...

    Raises:
        OneshotError: a number is none, there is no Slurm, it does not know a parameter, or `folder` cannot be written.
    """

    name = "slurm"
    elsewhere = True
    pause = 5.0

    def __init__(
        self, *, jobs_per_gpu: int, folder: str, array: int = 1000, requeues: int = 100, **parameters: Any
    ) -> None:
        if jobs_per_gpu > 1:
            raise OneshotError(f"trainer.jobs_per_gpu={jobs_per_gpu}: Slurm gives a job whole devices; use 1")
        check_number("hydra.launcher.array", array, "jobs")
        check_number("hydra.launcher.requeues", requeues, "times")
        _check(parameters)
        self.at_once = array
        self._parallel: int | None = parameters.get("array_parallelism")
        self.folder = folder
        try:
            with self._writing():
                self.executor = self._executor(Path(folder), requeues)
            self.executor.update_parameters(**{key: value for key, value in parameters.items() if value is not None})
        except (RuntimeError, ValueError, TypeError) as error:
            raise OneshotError(f"hydra/launcher={self.name}: {' '.join(str(error).split())}") from error
        self._jobs: list[submitit.Job[Outcome]] = []

    def submit(self, tasks: Sequence[Task]) -> list["submitit.Job[Outcome]"]:
        """One array job; a single one has no array.

        What comes after the first array runs beside what is left of it, and Slurm holds neither to a limit of both: so
        from then on no more are in the queue than may run at once.
        """
        self.at_once = min(self.at_once, self._parallel or self.at_once)
        with self._writing():
            JobPaths.get_first_id_independent_folder(self.folder).mkdir(parents=True, exist_ok=True)
        with self.executor.batch():
            jobs = [self.executor.submit(self._callable(), task) for task in tasks]
        if self.elsewhere:
            for job in jobs:
                job.watcher = self._watcher
        self._jobs += jobs
        return jobs

    def stop(self) -> None:
        """They stay in the queue: the same command takes up what they leave."""
        if arrays := self._arrays():
            say(f"jobs stay in the queue; scancel {' '.join(sorted(arrays))} ends them")

    def waits_for(self) -> str:
        """What Slurm says of those that wait in its queue: some wait for ever, as beyond a partition's time limit."""
        return why_waiting(self._arrays()) if self.elsewhere else ""

    def _arrays(self) -> set[str]:
        """Slurm's numbers of what has not ended."""
        return {job.job_id.partition("_")[0] for job in self._jobs if not job.done()}

    @cached_property
    def _watcher(self) -> Accounts:
        return watcher()

    def _writing(self) -> AbstractContextManager[None]:
        return writing(f"hydra.launcher.folder={self.folder}")

    def _executor(self, folder: Path, requeues: int) -> Any:
        return submitit.SlurmExecutor(folder, max_num_timeout=requeues)

    def _callable(self) -> Any:
        return Requeued()


def _check(parameters: Mapping[str, Any]) -> None:
    """Refuse now what else would be found out in the queue, or when a job's time is up: submitit counts in minutes."""
    for name, of in {"array_parallelism": "jobs", "cpus_per_task": "cores"}.items():
        check_number(f"hydra.launcher.{name}", parameters.get(name), of, or_null=True)
    if "time" in parameters:
        check_number("hydra.launcher.time", parameters["time"], "minutes")
    for name, hint in OTHERS.items():
        check_value(f"hydra.launcher.{name}", parameters.get(name), hint)


class Local(Requeued):
    """A job of submitit's local executor, which hides all GPUs or gives every job the first ones, and all cores.

    Args:
        devices: all GPUs.
        at_once: jobs that share the cores.
    """

    def __init__(self, devices: Sequence[str], at_once: int) -> None:
        self.environment = {VISIBLE: ",".join(devices), **threads_each(at_once)}

    def __call__(self, task: Task) -> Outcome:
        """Run it with a view of all devices, of which it leases one, and its share of the cores."""
        os.environ.update(self.environment)
        return super().__call__(task)


class SlurmHere(Slurm):
    """The same path through pickles and processes without a queue: `at_once` jobs on this machine."""

    name = "slurm_local"
    elsewhere = False
    pause = 0.2

    def __init__(self, *, jobs_per_gpu: int, folder: str, at_once: int = 2, timeout_min: int = 60) -> None:
        check_number("hydra.launcher.at_once", at_once, "jobs")
        check_number("hydra.launcher.timeout_min", timeout_min, "minutes")
        super().__init__(jobs_per_gpu=1, folder=folder, array=at_once, timeout_min=timeout_min)

    def stop(self) -> None:
        """End them: there is no queue."""
        for job in self._jobs:
            if not job.done():
                job.cancel()

    def _executor(self, folder: Path, requeues: int) -> Any:
        return submitit.LocalExecutor(folder, max_num_timeout=requeues)

    def _callable(self) -> Any:
        return Local(visible_devices(), self.at_once)
