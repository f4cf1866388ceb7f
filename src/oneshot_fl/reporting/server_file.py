"""The global model as a file that says by itself what it is."""

from pathlib import Path

from torch import nn

from oneshot_fl.config.record import MODEL
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import Tones
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import write_model
from oneshot_fl.phases.global_model import StudentPlan
from oneshot_fl.recipe import described
from oneshot_fl.reporting.versions import versions


def write_server(
    folder: Path,
    model: nn.Module,
    student: StudentPlan,
    spec: DataSpec,
    class_names: tuple[str, ...],
    *,
    method: str,
    accuracy: float | None,
    temperature: float | None,
    tones: Tones,
) -> None:
    """Write `server.safetensors`.

    Args:
        accuracy: on the test set, a fraction; None where there is none.
        temperature: of the calibration; None where there is none.
        tones: of the image files that clients trained on.

    Raises:
        OneshotError: the disk is full, or the folder cannot be written.
    """
    description = ModelDescription(
        kind="classifier",
        architectures=tuple(described(one.recipe) for one in student.architectures),
        spec=spec,
        class_names=class_names,
        versions=versions(),
        method=method,
        accuracy=accuracy,
        temperature=temperature,
        tones=tones,
    )
    write_model(folder / MODEL, model.state_dict(), description)
