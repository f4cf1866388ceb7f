"""`python -m oneshot_fl`: Hydra's door. Compose the configuration, run the job.

Exit codes: 0 done, 1 an unexpected error (with traceback), 2 a mistake in the input (one plain line on stderr), 130 and
143 interrupted by SIGINT and SIGTERM. Of a sweep with failures the first one's.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneshot_fl.errors import OneshotError
from oneshot_fl.process import keep_freed_memory, share_the_cores, stoppable
from oneshot_fl.version import __version__

if TYPE_CHECKING:
    from omegaconf import DictConfig

OF_JOBS: list[Exception] = []
"""What jobs raised; whatever else arrives in `main` is about composing their configuration."""


def main() -> None:
    """Hydra's command line with our exit codes; can be interrupted from its first moment."""
    with stoppable():
        if sys.argv[1:] == ["--version"]:  # ours; Hydra would print its own
            print(f"oneshot_fl {__version__}")
            return
        os.environ["HYDRA_FULL_ERROR"] = "1"  # hands errors to us instead of printing part of them
        share_the_cores()
        keep_freed_memory()
        _through_hydra()


def _through_hydra() -> None:
    """Compose and run one job, or the jobs of a sweep."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from oneshot_fl.config.compose import config_dir
    from oneshot_fl.config.explain import explain
    from oneshot_fl.config.sweep import SweepFolder, last_line

    try:
        hydra.main(version_base="1.3", config_path=str(config_dir()), config_name="config")(_job)()
    except OneshotError:
        sys.exit(2)  # the line was printed when it happened
    except Exception as error:
        if isinstance(error, HydraException | OmegaConfBaseException) or error not in OF_JOBS:
            _complain(explain(error, sys.argv[1:]))
            sys.exit(2)
        if SweepFolder.folder is None:
            raise
        sys.exit(1)  # every job's traceback lies in its folder
    finally:
        if SweepFolder.folder is not None:
            _complain(last_line(SweepFolder.folder, SweepFolder.began))


def _job(cfg: "DictConfig") -> float:
    """One job; returns the server's accuracy for sweepers that optimise."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from oneshot_fl.config import experiment_of
    from oneshot_fl.config.record import choices
    from oneshot_fl.job import job
    from oneshot_fl.reporting.record import ERROR

    folder = Path(HydraConfig.get().runtime.output_dir)
    single = HydraConfig.get().mode == RunMode.RUN
    try:
        summary: dict[str, Any] = job(partial(experiment_of, cfg), choices(cfg), folder)
        return summary["server"]["accuracy_last"]
    except OneshotError as error:
        _complain(str(error))
        if single:
            sys.exit(2)
        raise  # the other jobs of a sweep go on
    except Exception as error:
        OF_JOBS.append(error)
        if not single:
            _complain(f"{type(error).__name__}: {error}; the traceback is in {folder / ERROR}")
        raise


def _complain(line: str) -> None:
    print(f"oneshot_fl: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
