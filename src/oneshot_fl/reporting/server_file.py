"""The global model as a file that says by itself what it is."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from oneshot_fl.config.record import MODEL
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.described import MOST_ARCHITECTURES, ModelDescription, described_by
from oneshot_fl.models.model_file import write_model
from oneshot_fl.phases.global_model import StudentPlan
from oneshot_fl.recipe import described
from oneshot_fl.reporting.versions import versions

LONGEST_FIGURE = 1.2345678901234567e-05
"""No accuracy or temperature takes more characters."""


def server_description(
    student: StudentPlan, spec: DataSpec, class_names: tuple[str, ...], *, method: str, tones: Tones
) -> ModelDescription:
    """What `server.safetensors` will say of its model, but for its figures: all of it is known before one is made.

    Args:
        tones: of the image files that clients trained on.

    Raises:
        OneshotError: nothing could read it again: there are too many architectures or names of classes, or what a
            model is built with is not plain.
    """
    if (count := len(student.architectures)) > MOST_ARCHITECTURES:
        raise OneshotError(
            f"method={method}: the server's model would be {count} architectures that vote, and a model file holds "
            f"{MOST_ARCHITECTURES}; choose a method that makes one model, for instance method=fedchorus"
        )
    description = ModelDescription(
        kind="classifier",
        architectures=tuple(described(one.recipe) for one in student.architectures),
        spec=spec,
        class_names=class_names,
        versions=versions(),
        method=method,
        tones=tones,
    )
    described_by(replace(description, accuracy=LONGEST_FIGURE, temperature=LONGEST_FIGURE).metadata(), MODEL)
    return description


def write_server(
    folder: Path, model: nn.Module, description: ModelDescription, *, accuracy: float | None, temperature: float | None
) -> None:
    """Write `server.safetensors`.

    Args:
        accuracy: on the test set, a fraction; None where there is none.
        temperature: of the calibration; None where there is none.

    Raises:
        OneshotError: the disk is full, or the folder cannot be written.
    """
    known = replace(description, accuracy=accuracy, temperature=temperature)
    write_model(folder / MODEL, model.state_dict(), known)
