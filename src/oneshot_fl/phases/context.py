"""What every phase is handed besides its own inputs."""

from dataclasses import dataclass

from oneshot_fl.phases.trainer import TrainerSettings
from oneshot_fl.store import Store
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress


@dataclass(frozen=True)
class Context:
    """The store, the Trainer's settings, where progress and metrics go, and how many processes work at once."""

    store: Store
    trainer: TrainerSettings
    progress: Progress
    log: RunLog
    workers: int = 1
    """Processes that make a phase's independent artifacts."""
