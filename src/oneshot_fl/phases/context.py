"""What every phase is handed besides its own inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oneshot_fl.store import Store
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress


@dataclass(frozen=True)
class Context:
    """The store, the Trainer's settings, and where progress and metrics go."""

    store: Store
    trainer: Mapping[str, Any]
    progress: Progress
    log: RunLog
