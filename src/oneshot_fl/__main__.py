"""`python -m oneshot_fl`: Hydra's door. Compose the configuration, run the job.

Exit codes: 0 done, 1 an unexpected error (with traceback), 2 a mistake in the input (one plain line on stderr), 130 and
143 interrupted by SIGINT and SIGTERM. Of a sweep with failures the first one's.
"""

import os
import sys
from functools import partial
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config import experiment_of
from oneshot_fl.config.checks import explain
from oneshot_fl.config.compose import config_dir
from oneshot_fl.config.record import choices
from oneshot_fl.config.sweep import SweepFolder, last_line
from oneshot_fl.errors import OneshotError
from oneshot_fl.job import job
from oneshot_fl.process import keep_freed_memory, share_the_cores
from oneshot_fl.reporting.record import ERROR


def main() -> None:
    """The console script: Hydra's command line with our exit codes."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # hands errors to us instead of printing part of them
    share_the_cores()
    keep_freed_memory()
    try:
        _hydra_main()
    except OneshotError:
        sys.exit(2)  # the line was printed when it happened
    except (HydraException, OmegaConfBaseException) as error:
        _complain(explain(error))
        sys.exit(2)
    except Exception:
        if SweepFolder.folder is None:
            raise
        sys.exit(1)  # every job's traceback lies in its folder
    finally:
        if SweepFolder.folder is not None:
            _complain(last_line(SweepFolder.folder, SweepFolder.began))


@hydra.main(version_base="1.3", config_path=str(config_dir()), config_name="config")
def _hydra_main(cfg: DictConfig) -> float | None:
    """One job; returns the server's accuracy for sweepers that optimise."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    single = HydraConfig.get().mode == RunMode.RUN
    try:
        return job(partial(experiment_of, cfg), choices(cfg), folder)["server"]["accuracy_last"]
    except OneshotError as error:
        _complain(str(error))
        if single:
            sys.exit(2)
        raise  # the other jobs of a sweep go on
    except Exception as error:
        if not single:
            _complain(f"{type(error).__name__}: {error}; the traceback is in {folder / ERROR}")
        raise


def _complain(line: str) -> None:
    print(f"oneshot_fl: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
