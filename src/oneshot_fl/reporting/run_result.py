"""Everything that a run found out."""

from dataclasses import dataclass

from oneshot_fl.data.dataset import Dataset
from oneshot_fl.data.partition import Partition
from oneshot_fl.ledger import Cost
from oneshot_fl.parts.uploads import Server, Uploads
from oneshot_fl.phases.calibrate import Calibration
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.phases.evaluate import Evaluated
from oneshot_fl.phases.global_model import Distilled
from oneshot_fl.phases.recite import Recitals
from oneshot_fl.phases.stratify import Guidance


@dataclass(frozen=True)
class Served:
    """What the server had, and what it made of it."""

    given: Server
    """The uploads that it used, and what it computed of them for the method's parts."""
    guidance: Guidance | None
    recitals: Recitals | None
    server: Distilled
    calibration: Calibration | None
    """None where the method makes no images that could teach how sure to be."""

    @property
    def temperature(self) -> float | None:
        """What the server's logits are divided by before they are probabilities; None where nothing taught it."""
        return self.calibration.temperature if self.calibration else None


@dataclass(frozen=True)
class RunResult(Served):
    """The results of all phases, as the report needs them."""

    data: Dataset
    partition: Partition
    clients: list[TrainedClient]
    received: Uploads
    """What they uploaded, after an attack and before gate and hearing."""
    evaluated: Evaluated
    testing: Cost
    """Of `evaluated`."""
