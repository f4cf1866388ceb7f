"""Begin a sweep's command again, for exactly those of its jobs that failed."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from oneshot_fl.config.compose import placed
from oneshot_fl.config.words import overrides_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.sweeps.lines import without_folder
from oneshot_fl.sweeps.manifest import Manifest
from oneshot_fl.sweeps.state import Job

GRID = "BasicSweeper"
"""The sweeper whose jobs are the same whenever its command is typed."""


def command_of_failed(folder: Path, manifest: Manifest) -> list[str]:
    """The words behind `python -m oneshot_fl` that run a sweep's failed jobs again, in their folders.

    Raises:
        OneshotError: its sweeper would choose other jobs now.
    """
    check_grid(str(folder), manifest.sweeper)
    own = without_folder(word for word in overrides_of(manifest.command) if word not in manifest.searched)
    return ["-m", *manifest.searched, *own, placed("hydra.sweep.dir", folder), "hydra.launcher.only=failed"]


def check_grid(where: str, sweeper: str) -> None:
    """Jobs are begun again only by a sweeper whose jobs are the same whenever its command is typed.

    Raises:
        OneshotError: this one, by the name of its class, would choose other jobs now.
    """
    if sweeper != GRID:
        raise OneshotError(
            f"{where}: {sweeper} chooses its jobs as it goes; run the single commands that status prints"
        )


def check_made(failed: Sequence[Job], made: Collection[int], folder: Path) -> None:
    """A command makes every job that failed: none of them is left out unsaid.

    Args:
        made: the numbers of all jobs that the command makes now.

    Raises:
        OneshotError: it does not; the configuration may have changed since, or an earlier version noted the command.
    """
    if left := [f"{job.number} ({job.what})" for job in failed if job.number not in made]:
        raise OneshotError(
            f"{folder}: the command does not make all jobs that failed: {', '.join(left)}; run the single commands "
            f"that `oneshot-fl status {folder}` prints"
        )


def go_to(manifest: Manifest) -> None:
    """Be where the sweep was begun: its data and stores may be named from there.

    Raises:
        OneshotError: that folder is gone.
    """
    try:
        os.chdir(manifest.cwd)
    except OSError as error:
        raise OneshotError(f"{manifest.cwd}: the sweep was begun there, and it is gone ({error.strerror})") from error
