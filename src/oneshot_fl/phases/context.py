"""What every phase is handed besides its own inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oneshot_fl.artifacts import Store
from oneshot_fl.reporting.loggers import RunLog
from oneshot_fl.reporting.progress import Progress


@dataclass(frozen=True)
class Context:
    """The store, the Trainer's settings, and where progress and metrics go."""

    store: Store
    trainer: Mapping[str, Any]
    progress: Progress
    log: RunLog
