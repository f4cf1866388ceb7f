"""Everything that a run found out."""

from dataclasses import dataclass

from oneshot_fl.data.dataset import Dataset
from oneshot_fl.data.partition import Partition
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.phases.evaluate import Evaluated
from oneshot_fl.phases.global_model import Distilled
from oneshot_fl.phases.recite import Recitals
from oneshot_fl.phases.stratify import Guidance


@dataclass(frozen=True)
class RunResult:
    """The results of all phases, as the report needs them."""

    data: Dataset
    partition: Partition
    clients: list[TrainedClient]
    guidance: Guidance | None
    recitals: Recitals | None
    server: Distilled
    evaluated: Evaluated
