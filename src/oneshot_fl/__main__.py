"""`python -m oneshot_fl`: Hydra's door. Compose the configuration, run the job.

Exit codes: 0 done, 1 an unexpected error (with traceback), 2 a mistake in the input (one plain line on stderr), 130 and
143 interrupted by SIGINT and SIGTERM. Of a sweep with failures the first one's.
"""

import os
import sys
from collections.abc import Sequence

from oneshot_fl.errors import OneshotError
from oneshot_fl.process import keep_freed_memory, print_whatever_it_is, say, share_the_cores, stoppable
from oneshot_fl.version import __version__


def names_a_command(words: Sequence[str]) -> bool:
    """Whether a command line begins with the name of something to do and not with a setting or an option."""
    return bool(words) and "=" not in words[0] and not words[0].startswith(("-", "+", "~"))


def main() -> None:
    """Hydra's command line with our exit codes; can be interrupted from its first moment."""
    if names_a_command(sys.argv[1:]):
        word = sys.argv[1]
        say(f"{word}: is no KEY=VALUE; commands are of the program itself, oneshot-fl {word}, without python -m")
        sys.exit(2)
    with stoppable():
        if sys.argv[1:] == ["--version"]:  # ours; Hydra would print its own
            print(f"oneshot_fl {__version__}")
            return
        os.environ["HYDRA_FULL_ERROR"] = "1"  # hands errors to us instead of printing part of them
        print_whatever_it_is()
        share_the_cores()
        keep_freed_memory()
        _through_hydra()


def _through_hydra() -> None:
    """Compose and run one job, or the jobs of a sweep."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from oneshot_fl.config.compose import PRIMARY, config_dir
    from oneshot_fl.config.explain import explain
    from oneshot_fl.config.sweep import SweepFolder
    from oneshot_fl.config.words import check_words, together
    from oneshot_fl.launchers.hydra_side import JobFailedError
    from oneshot_fl.launchers.task import OF_JOBS, run
    from oneshot_fl.sweeps.search import closing_lines

    try:
        sys.argv[1:] = together(sys.argv[1:])
        check_words(sys.argv[1:])
        hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=PRIMARY)(run)()
    except JobFailedError as error:
        sys.exit(error.exit_code)
    except OneshotError as error:  # of the words or the launcher; a single job has told its own
        say(str(error))
        sys.exit(2)
    except BrokenPipeError:
        raise  # of our output, which is no mistake in the input
    except Exception as error:
        if isinstance(error, HydraException | OmegaConfBaseException) or error not in OF_JOBS:
            say(explain(error, sys.argv[1:]))
            sys.exit(2)
        raise
    finally:
        if SweepFolder.folder is not None and SweepFolder.begun:
            for line in closing_lines(SweepFolder.folder, SweepFolder.done):
                say(line)


if __name__ == "__main__":
    main()
