"""Begin a sweep's command again, for exactly those of its jobs that failed."""

import os
from pathlib import Path

from oneshot_fl.errors import OneshotError
from oneshot_fl.sweeps.lines import without_folder
from oneshot_fl.sweeps.manifest import Manifest, placed

GRID = "BasicSweeper"
"""The sweeper whose jobs are the same whenever its command is typed."""


def command_of_failed(folder: Path, manifest: Manifest) -> list[str]:
    """The words behind `python -m oneshot_fl` that run a sweep's failed jobs again, in their folders.

    Raises:
        OneshotError: its sweeper would choose other jobs now.
    """
    if manifest.sweeper != GRID:
        raise OneshotError(
            f"{folder}: {manifest.sweeper} chooses its jobs as it goes; run the single commands that status prints"
        )
    return [*without_folder(manifest.command), placed("hydra.sweep.dir", folder), "hydra.launcher.only=failed"]


def go_to(manifest: Manifest) -> None:
    """Be where the sweep was begun: its data and stores may be named from there.

    Raises:
        OneshotError: that folder is gone.
    """
    try:
        os.chdir(manifest.cwd)
    except OSError as error:
        raise OneshotError(f"{manifest.cwd}: the sweep was begun there, and it is gone ({error.strerror})") from error
