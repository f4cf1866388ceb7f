"""Ray: one task a job, on the cluster that `ray start` made, or on this machine.

hydra-ray-launcher wants cloudpickle below 3, which joblib and others are past, and starts and ends clusters of its own.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

import ray

from oneshot_fl.devices import ASSIGNED
from oneshot_fl.errors import OneshotError, one_line
from oneshot_fl.launchers.engine import Engine, Outcome, Pending, Task, check_number, work
from oneshot_fl.process import say
from oneshot_fl.reporting.finished import LOG

AUTHENTICATION = "RAY_AUTH_MODE"
"""Says whether Ray shows its token. A cluster that is begun where a token lies asks for it since 2.59; unless its
address is `auto`, whoever joins does not show it, and Ray's error is that of an address where nobody is."""


def run(task: Task, dealt: bool) -> Outcome:
    """A job in a process of Ray's, which has set CUDA_VISIBLE_DEVICES and OMP_NUM_THREADS to the task's share."""
    if dealt:
        os.environ[ASSIGNED] = "1"
    return work(task, LOG)


class Rays(Engine):
    """As many jobs at once as the cluster has room for.

    Args:
        jobs_per_gpu: `trainer.jobs_per_gpu`, 0 where jobs use no GPU; a job asks Ray for that part of a device,
            where the cluster has some.
        address: of a cluster, `auto` for the one of this machine; None starts one here that ends with the program.
        cpus: cores, and threads, of a job.
        here: cores of a cluster that is started here; None: all.
        at_once: jobs that Ray is given at once; None: as many as the cluster had room for at the beginning. With a
            number, one that is there may grow.

    Raises:
        OneshotError: a number is none, there is no such cluster, or it has no room for one job and does not grow.
    """

    name = "ray"
    pause = 0.2

    def __init__(
        self,
        *,
        jobs_per_gpu: int = 1,
        address: str | None = None,
        cpus: int = 1,
        here: int | None = None,
        at_once: int | None = None,
    ) -> None:
        check_number("hydra.launcher.cpus", cpus, "cores")
        check_number("hydra.launcher.here", here, "cores", or_null=True)
        check_number("hydra.launcher.at_once", at_once, "jobs", or_null=True)
        self.elsewhere = address is not None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
        _join(address, here)
        machines = [each["Resources"] for each in ray.nodes() if each["Alive"]]
        places = sum(each.get("GPU", 0.0) for each in machines) * jobs_per_gpu
        self.dealt = places > 0
        room = [each.get("CPU", 0.0) for each in machines if each.get("GPU") or not self.dealt]
        if max(room, default=0.0) < cpus:
            self._lacks_room(cpus, max(room, default=0.0), may_grow=self.elsewhere and at_once is not None)
        self.at_once = at_once or int(places or sum(cores // cpus for cores in room))
        share = {"num_gpus": 1 / jobs_per_gpu} if self.dealt else {}
        self._run = ray.remote(num_cpus=cpus, max_retries=0, **share)(run)
        self._given: list[Any] = []

    def submit(self, tasks: Sequence[Task]) -> list[Pending]:
        """One Ray task each; Ray itself does not try again, the launcher's loop does."""
        given = [self._run.remote(task, self.dealt) for task in tasks]
        self._given += given
        return [each.future() for each in given]

    def stop(self) -> None:
        """Interrupt the tasks, then leave the cluster, which ends one that was started here."""
        for each in self._given:
            ray.cancel(each)
        ray.wait(self._given, num_returns=len(self._given), timeout=10)
        ray.shutdown()

    def _lacks_room(self, cpus: int, most: float, *, may_grow: bool) -> None:
        """Ray waits for a machine that is large enough, if need be for ever."""
        which = "its machines with GPUs" if self.dealt else "its machines"
        line = f"hydra.launcher.cpus={cpus}: more than the cluster has on one of {which} ({most:g})"
        if not may_grow:
            raise OneshotError(line)
        say(f"{line}; jobs wait for another one")


def _join(address: str | None, here: int | None) -> None:
    """A cluster that is there, or one that is begun here and ends with this program."""
    own = {"num_cpus": here, "include_dashboard": False} if address is None else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True, **own)
    except Exception as error:  # it raises that very class where a start takes over 30 s
        if address is None:
            raise OneshotError(
                f"hydra/launcher=ray: no cluster could be started here ({one_line(error)}); try again when the machine "
                "is less busy, or start one with `ray start --head` and set hydra.launcher.address=auto"
            ) from error
        token = "" if AUTHENTICATION in os.environ else f"; one that asks for a token wants {AUTHENTICATION}=token here"
        raise OneshotError(
            f"hydra.launcher.address={address}: no such Ray cluster ({one_line(error)}){token}"
        ) from error
