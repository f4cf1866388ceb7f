"""What Hydra asks of a launcher, in terms of an engine."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, env_override, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config import resolved
from oneshot_fl.config.compose import having_published, plain, unresolved
from oneshot_fl.config.jobs import Composer, known_to_hydra
from oneshot_fl.config.named import source_code_of
from oneshot_fl.config.record import choices
from oneshot_fl.config.sweep import SweepFolder
from oneshot_fl.errors import OneshotError
from oneshot_fl.job import remembered, take_over
from oneshot_fl.launchers.engine import Engine, Outcome, Task, check_number
from oneshot_fl.launchers.loop import ATTEMPTS, Talk, run_all
from oneshot_fl.reporting.record import Trace
from oneshot_fl.sweeps.alone import alone_in
from oneshot_fl.sweeps.manifest import Manifest, extended, read_manifest
from oneshot_fl.sweeps.rerun import check_grid, check_made
from oneshot_fl.sweeps.search import check_direction, check_objective, searches, value_of
from oneshot_fl.sweeps.state import NOT_DONE, jobs_of, read_trace

ENGINES = {
    "local": ("oneshot_fl.launchers.here", "Here", ""),
    "joblib": ("oneshot_fl.launchers.workers", "Workers", "joblib"),
    "slurm": ("oneshot_fl.launchers.slurm", "Slurm", "slurm"),
    "slurm_local": ("oneshot_fl.launchers.slurm", "SlurmHere", "slurm"),
    "ray": ("oneshot_fl.launchers.rays", "Rays", "ray"),
}
"""Where each engine is, and the extra that brings what it needs."""
NUMBERED = re.compile(r"\bjob\.(num|id)\b")
"""With this in its name every job has a folder of its own; to find that out by composing all jobs would be slow."""
OF_A_JOB = re.compile(r"\$\{(?!now:)")
"""In the name of a sweep's folder, which then may be another one for each job."""


class JobFailedError(Exception):
    """A job of a sweep failed; what it said was printed when it did, and its traceback lies in its folder."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.error)
        self.exit_code = 2 if outcome.mistake else 1


def engine_of(name: str, options: dict[str, Any], jobs_per_gpu: int) -> Engine:
    """The engine of a launcher's configuration.

    Raises:
        OneshotError: there is none of that name, it lacks its library, or it does not take these options or numbers.
    """
    if name not in ENGINES:
        raise OneshotError(f"hydra.launcher.engine={name}: there is no such engine; choose from {', '.join(ENGINES)}")
    module, kind, extra = ENGINES[name]
    try:
        engine = getattr(import_module(module), kind)
    except ImportError as error:
        raise OneshotError(
            f"hydra/launcher={name}: needs a library that is not there ({error}); pip install 'oneshot-fl[{extra}]'"
        ) from error
    options = {key: plain(value) for key, value in options.items()}
    given = options if name == "local" else {**options, "jobs_per_gpu": jobs_per_gpu}
    if name != "local" and jobs_per_gpu != 0:
        check_number("trainer.jobs_per_gpu", jobs_per_gpu, "jobs")
    try:
        made: Engine = engine(**given)
    except TypeError as error:
        raise OneshotError(f"hydra.launcher: {error}; conf/hydra/launcher/{name}.yaml has what it takes") from error
    return made


def jobs_per_gpu(config: DictConfig) -> int:
    """How many of a sweep's jobs share a GPU; 0 where they use none."""
    return 0 if config.trainer.accelerator in ("cpu", "mps") else config.trainer.jobs_per_gpu


def check_whole(sweeper: DictConfig) -> None:
    """A grid is handed over whole: Hydra ends a sweep after the first batch with a failure, and tells of no later job.

    Raises:
        OneshotError: it is to come in batches.
    """
    size = sweeper.get("max_batch_size")
    if size is not None and not searches(str(sweeper._target_)):
        raise OneshotError(
            f"hydra.sweeper.max_batch_size={size}: must be null, a grid is run whole; how many of its jobs run at once "
            "is hydra.launcher.at_once (on Slurm hydra.launcher.array_parallelism)"
        )


def check_only(only: str | None, sweeper: str) -> None:
    """A search needs what each of its trials gave, also of those that are done.

    Raises:
        OneshotError: `hydra.launcher.only` is no word for some of the jobs, or the sweeper searches.
    """
    if only is None:
        return
    if only != "failed":
        raise OneshotError(f"hydra.launcher.only={only}: must be failed, or null for all jobs")
    check_grid("hydra.launcher.only=failed", sweeper.rpartition(".")[2])


class Launch:
    """One sweeper's jobs, or one batch of them.

    Raises:
        OneshotError: a grid is to come in batches, a search is to find the worst, or begin some of its trials again.
    """

    def __init__(
        self, context: HydraContext, task: TaskFunction, config: DictConfig, engine: Engine, only: str | None
    ) -> None:
        sweeper = config.hydra.sweeper
        check_whole(sweeper)
        check_only(only, str(sweeper._target_))
        check_direction(str(sweeper._target_), sweeper.get("direction"))
        self.context, self.task, self.config, self.engine, self.only = context, task, config, engine, only
        loader: Any = context.config_loader
        composer: Any = loader if isinstance(loader, Composer) else Composer(loader)
        self.composer = context.config_loader = composer  # also for the sweeper's own check of all jobs
        self.folder = Path(config.hydra.sweep.dir).absolute()
        self.before: dict[int, Outcome] = {}
        """Jobs that need not run."""
        self.places: dict[Path, int] = {}
        """Whose each job's folder is, also of earlier batches."""

    def __call__(self, overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        """Run jobs and hand back what Hydra wants to know of each.

        Raises:
            OneshotError: there is no job, the folder holds another sweep, two jobs have one folder or one lies outside
                of the sweep's, jobs that failed are not among these or are asked for where no sweep was begun, or a
                search would have to choose by test images.
        """
        setup_globals()
        if not overrides:
            words = [word for word in self.config.hydra.overrides.task if "glob(" in word]
            raise OneshotError(f"{', '.join(words)}: matches no choice, so that the sweep has no job; name one")
        target = str(self.config.hydra.sweeper._target_)
        if searches(target):  # before anything is trained
            check_objective(target, resolved(without_hydra(self.config)))
        jobs = {first + at: tuple(each) for at, each in enumerate(overrides)}
        for number in self._looked_at(jobs):
            self._place(number, self._compose(number, jobs[number]))
        manifest = extended(self.folder, Manifest(jobs, launcher=self.engine.name, sweeper=target.rpartition(".")[2]))
        chosen = self._chosen(manifest, jobs)
        manifest.write(self.folder)
        SweepFolder.begun = True
        talk = Talk(self.folder, manifest, left=set(chosen), waits_for=self.engine.waits_for)
        try:
            ended = run_all(self.engine, self._tasks(chosen, talk), talk, died)
        finally:
            SweepFolder.done |= talk.done
        return [as_return(overrides, {**ended, **self.before}[number]) for number, overrides in chosen.items()]

    def _chosen(self, manifest: Manifest, jobs: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
        if self.only is None:
            return jobs
        read_manifest(self.folder)  # where no sweep was begun nothing has failed
        failed = [job for job in jobs_of(self.folder, manifest) if job.status in NOT_DONE]
        check_made(failed, jobs, self.folder)
        return {job.number: job.overrides for job in failed}

    def _looked_at(self, jobs: dict[int, tuple[str, ...]]) -> list[int]:
        """The jobs whose folders are looked at before anything is written: one, where nothing speaks for all."""
        named = unresolved(self.config.hydra.sweep)
        alike = NUMBERED.search(str(named["subdir"])) and not OF_A_JOB.search(str(named["dir"]))
        return [*jobs][: 1 if alike else None]

    def _tasks(self, chosen: dict[int, tuple[str, ...]], talk: Talk) -> Iterator[Task]:
        """Jobs that are not done, composed when there is room for them."""
        state = None
        for number, overrides in chosen.items():
            config = self._compose(number, overrides)
            folder = self._place(number, config)
            if (done := _done_before(config, folder, any_machine=self.engine.elsewhere)) is not None:
                self.before[number] = done
                arithmetic = read_trace(folder)["arithmetic"] if self.engine.elsewhere else ""
                talk.done_before(number, done, arithmetic=arithmetic)
                continue
            published = self.composer.published(overrides)
            if self.engine.name == "local":
                call = partial(in_this_process, self.context, self.task, config, published)
            else:
                state = state or _state()
                call = partial(in_a_worker, _anywhere(config), state, _sources(config), published)
            yield Task(number, overrides, folder, call, os.getcwd())

    def _compose(self, number: int, overrides: tuple[str, ...]) -> DictConfig:
        config = self.composer.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        return config

    def _place(self, number: int, config: DictConfig) -> Path:
        """A job's folder, which is no other job's, in the sweep's."""
        with known_to_hydra(config):  # which names the folder before it sets a job's variables
            sweep, below = str(config.hydra.sweep.dir), str(config.hydra.sweep.subdir)
        folder = Path(sweep, below).absolute()
        if not Path(os.path.abspath(folder)).is_relative_to(os.path.abspath(self.folder)):  # abspath goes up at a `..`
            inside = Path(sweep).absolute() == self.folder
            raise OneshotError(
                f"hydra.sweep.{f'subdir={below}' if inside else f'dir={sweep}'}: job {number} would lie outside of the "
                f"sweep's folder {self.folder}; put what jobs' folders differ in into hydra.sweep.subdir, without `..`"
            )
        if (other := self.places.setdefault(folder, number)) != number:
            raise OneshotError(
                f"hydra.sweep.subdir={below}: jobs {other} and {number} would both write into {folder}; add "
                "${hydra.job.num}, or what they differ in"
            )
        return folder


def _done_before(config: DictConfig, folder: Path, *, any_machine: bool) -> Outcome | None:
    """What a finished run gave, taken over into a job's folder; None where there is none or that fails."""
    with _as_in_job(config):
        own = without_hydra(config)
        place = remembered(resolved(own))
        done = None if place is None else place.find_of_any_machine(folder) if any_machine else place.find(folder)
        if done is None:
            return None
        try:
            with alone_in(folder, wait=False):
                summary = take_over(done, {**choices(own), "job": config.hydra.job.num}, folder)
        except (OneshotError, OSError, ValueError):  # the job meets it again, and fails alone where it stays
            return None
    try:
        return Outcome("done", value_of(summary, str(config.hydra.sweeper._target_)))
    except OneshotError as error:  # fails as the job itself did, and alone
        return Outcome("failed", error=str(error), mistake=True)


@contextmanager
def _as_in_job(config: DictConfig) -> Iterator[None]:
    """Inside the block files and variables (`hydra.job.env_set`) count as in a job: so what it comes to is its own."""
    with known_to_hydra(config), env_override(config.hydra.job.env_set):
        yield


def without_hydra(config: DictConfig) -> DictConfig:
    """A job's own configuration."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def _anywhere(config: DictConfig) -> DictConfig:
    """With the store that the sweep itself looks in: a variable of the environment may be another one elsewhere."""
    with _as_in_job(config), open_dict(config), suppress(OmegaConfBaseException):  # the job meets it, and fails alone
        config.store = config.store
    return config


def _sources(config: DictConfig) -> str | None:
    """`source_code_of` a job in this process."""
    with _as_in_job(config):
        return source_code_of(resolved(without_hydra(config)))


def _state() -> bytes:
    """Hydra's own state, for a process that has not gone through its door."""
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(Singleton.get_state())
    return pickled


def in_this_process(
    context: HydraContext, task: TaskFunction, config: DictConfig, published: dict[str, Any] | None
) -> Outcome:
    """Run a job as Hydra's own launcher does."""
    with having_published(published):
        return as_outcome(_run(context, task, config))


def in_a_worker(config: DictConfig, state: bytes, sources: str | None, published: dict[str, Any] | None) -> Outcome:
    """Run a job in a process of an engine; it fails where that imports other sources than the sweep began with."""
    import cloudpickle
    from hydra._internal.callbacks import Callbacks

    from oneshot_fl.launchers.task import run

    Singleton.set_state(cloudpickle.loads(state))
    setup_globals()
    context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks(config))
    return in_this_process(context, partial(run, sources=sources), config, published)


def _run(context: HydraContext, task: TaskFunction, config: DictConfig) -> JobReturn:
    return run_job(
        hydra_context=context,
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def as_outcome(returned: JobReturn) -> Outcome:
    """What Hydra hands back, in terms of an engine."""
    if returned.status == JobStatus.COMPLETED:
        return Outcome("done", returned.return_value)
    error = returned._return_value
    mistake = isinstance(error, OneshotError)
    return Outcome("failed", error=str(error) if mistake else f"{type(error).__name__}: {error}", mistake=mistake)


def as_return(overrides: Sequence[str], outcome: Outcome) -> JobReturn:
    """What an engine hands back, in terms of Hydra; a failed one raises when Hydra looks at its value."""
    returned = JobReturn(overrides=list(overrides))
    returned.status = JobStatus.COMPLETED if outcome.status == "done" else JobStatus.FAILED
    returned.return_value = outcome.value if outcome.status == "done" else JobFailedError(outcome)
    return returned


def died(task: Task, error: str) -> None:
    """Leave word of a job whose process died every time."""
    trace = Trace(task.folder, {**read_trace(task.folder), "overrides": list(task.overrides), "job": task.number})
    trace.where = {}  # that of the job, as far as it got to write it
    trace.write("failed", error=f"its process died {ATTEMPTS} times ({error}); out of memory?")
