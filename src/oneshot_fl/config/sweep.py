"""What a sweep says at its end: how many jobs are done, and where those lie that are not."""

import hashlib
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config.record import TRACE

LONGEST = 160
"""Characters of a sweep's job folder; file systems take 255 bytes."""


def folder_name(text: str) -> str:
    """What a job's overrides are as one folder's name: nothing that a path or a shell takes for something else."""
    plain = re.sub(r"[^\w.=,+-]+", "_", text)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)


class SweepFolder(Callback):
    """Remembers, in the process that began it, where a sweep lies and when it began."""

    folder: ClassVar[Path | None] = None
    began: ClassVar[float] = 0.0
    sweeper: ClassVar[str] = ""
    """The dotted name of its class."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Hydra's hook."""
        SweepFolder.folder, SweepFolder.began = Path(config.hydra.sweep.dir).absolute(), time.time()
        SweepFolder.sweeper = str(config.hydra.sweeper._target_)


def last_line(folder: Path, began: float) -> str:
    """`N done, M failed: folders` over the jobs that ran since `began`."""
    traces = {path.parent: json.loads(path.read_text()) for path in _since(folder.rglob(TRACE), began)}
    by_status: dict[str, list[str]] = {}
    for place, trace in sorted(traces.items()):
        by_status.setdefault(trace["status"], []).append(str(place))
    counts = [f"{len(by_status.pop('done', []))} done"]
    counts += [f"{len(places)} {status}: {', '.join(places)}" for status, places in by_status.items()]
    return ", ".join(counts)


def _since(paths: Iterable[Path], began: float) -> list[Path]:
    return [path for path in paths if path.stat().st_mtime >= began]
