"""Where a sweep lies, and how the folders of its jobs are named."""

import hashlib
import re
from pathlib import Path
from typing import Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

LONGEST = 160
"""Bytes of the name of a sweep's job folder, as UTF-8; file systems take 255."""
DIGITS = 8
"""Of a hash of what was cut off."""


def folder_name(text: str) -> str:
    """What a job's overrides are as one folder's name: nothing that a path or a shell takes for something else."""
    plain = re.sub(r"[^\w.=,+-]+", "_", text)
    if len(plain.encode()) <= LONGEST:
        return plain
    kept = plain.encode()[: LONGEST - DIGITS - 1].decode(errors="ignore")  # without half a letter at its end
    return f"{kept}-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"


OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)


class SweepFolder(Callback):
    """Remembers, in the process that began it, where a sweep lies."""

    folder: ClassVar[Path | None] = None
    begun: ClassVar[bool] = False
    """Whether its launcher took it; what lies there else is another sweep, or none."""
    done: ClassVar[set[int]] = set()
    """The jobs that this process ran, or found to be done; what others left there an earlier one did."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Hydra's hook."""
        SweepFolder.folder = Path(config.hydra.sweep.dir).absolute()
