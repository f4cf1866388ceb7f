"""The launcher by which Hydra hands a sweep's jobs to `oneshot_fl.launchers`.

Hydra finds plugins in this namespace only, and imports all of them whenever it starts: so nothing is imported here that
only a sweep needs.
"""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class SweepLauncher(Launcher):
    """Run a sweep's jobs on an engine.

    Args:
        engine: the file's name in conf/hydra/launcher.
        only: `failed` to run exactly those jobs of the sweep in `hydra.sweep.dir` again; None: all.
        options: the engine's.
    """

    def __init__(self, engine: str, only: str | None = None, **options: Any) -> None:
        self.engine, self.only, self.options = engine, only, options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's hook, before the sweeper looks at the jobs."""
        from oneshot_fl.launchers.hydra_side import Launch, engine_of, jobs_per_gpu

        engine = engine_of(self.engine, self.options, jobs_per_gpu(config))
        self.run = Launch(hydra_context, task_function, config, engine, self.only)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's hook: run these jobs."""
        return self.run(job_overrides, initial_job_idx)
