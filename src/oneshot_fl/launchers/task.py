"""What Hydra calls with every composed configuration: one job, in this process or in a worker."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from traceback import clear_frames
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from oneshot_fl.config import experiment_of, resolved
from oneshot_fl.config.named import source_code_of
from oneshot_fl.config.record import choices
from oneshot_fl.config.shadowed import check_read
from oneshot_fl.config.single import left_out
from oneshot_fl.errors import OneshotError
from oneshot_fl.job import job
from oneshot_fl.process import say
from oneshot_fl.reporting.record import ERROR
from oneshot_fl.sweeps.search import check_objective, value_of
from oneshot_fl.sweeps.state import read_trace

OF_JOBS: list[Exception] = []
"""What jobs of this process raised; whatever else arrives at the door is about composing their configuration."""


def run(cfg: DictConfig, *, sources: str | None = None) -> float:
    """One job; returns what its sweeper asks for (`sweeps.search`).

    Args:
        sources: `config.named.source_code_of` in the process that began the sweep, where that is another one.
    """
    folder = Path(HydraConfig.get().runtime.output_dir)
    single = HydraConfig.get().mode == RunMode.RUN
    if single and (ignored := left_out(HydraConfig.get())):
        say(ignored)
    known = choices(cfg) | (number_kept(folder) if single else {"job": HydraConfig.get().job.num})
    try:
        config, sweeper = resolved(cfg), "" if single else str(HydraConfig.get().sweeper._target_)
        check_read(HydraConfig.get())
        check_objective(sweeper, config)
        check_sources(config, sources)
        check = partial(check_sources, config, sources)  # at its end again: parts are imported where they are needed
        summary: dict[str, Any] = job(partial(experiment_of, cfg), known, config, folder, check=check)
        return value_of(summary, sweeper)
    except OneshotError as error:
        say(str(error))
        if single:
            sys.exit(2)
        _let_go(error)
        raise  # the other jobs of a sweep go on
    except Exception as error:
        OF_JOBS.append(error)
        if not single:
            _let_go(error)
            say(f"{type(error).__name__}: {error}; the traceback is in {folder / ERROR}")
        raise


def check_sources(config: Mapping[str, Any] | None, sources: str | None) -> None:
    """A job runs what its sweep began with, by which those of its siblings that are done were found.

    Raises:
        OneshotError: files of code were edited before this process imported them.
    """
    if None not in (sources, now := source_code_of(config)) and now != sources:
        raise OneshotError(
            "this job's code is not what the sweep began with, as files were edited meanwhile; start the sweep again"
        )


def _let_go(error: BaseException | None) -> None:
    """Whoever keeps an error keeps what was in use where it was raised: models, on the device of the jobs to come."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def number_kept(folder: Path) -> dict[str, int]:
    """The number of the job whose folder this is: a single run there, as `status` prints it, is that job again."""
    trace = read_trace(folder)
    return {"job": trace["job"]} if "job" in trace else {}
