"""Where a sweep lies, and how the folders of its jobs are named."""

import hashlib
import re
from pathlib import Path
from typing import Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

LONGEST = 160
"""Characters of a sweep's job folder; file systems take 255 bytes."""


def folder_name(text: str) -> str:
    """What a job's overrides are as one folder's name: nothing that a path or a shell takes for something else."""
    plain = re.sub(r"[^\w.=,+-]+", "_", text)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)


class SweepFolder(Callback):
    """Remembers, in the process that began it, where a sweep lies."""

    folder: ClassVar[Path | None] = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Hydra's hook."""
        SweepFolder.folder = Path(config.hydra.sweep.dir).absolute()
