"""A global model that can be asked about images as they come."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import USUAL, Byte, Decoding, Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import problem, shown
from oneshot_fl.models.mode import evaluating
from oneshot_fl.models.place import place_of
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.serving.pictures import Picture, pictures
from oneshot_fl.values import Positive, Rule

if TYPE_CHECKING:
    from PIL import Image

AT_ONCE = 128
"""Images in a batch."""
CHOICES: dict[str, Any] = {
    "abstain": Annotated[float, Rule("a number from 0 to 1", lambda value: 0 <= value <= 1)],
    "max_value": Positive,
    "background": Byte,
}
"""What a caller may say of how images are read and answered."""


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image."""

    image: str
    """Its path; of what has none, its number."""
    label: str | None
    """The most probable class; None where it is less probable than was asked for."""
    probability: float
    """Of the most probable class."""
    probabilities: dict[str, float]
    """Of every class, by name."""


@dataclass(frozen=True)
class Source:
    """The file that a model was loaded from."""

    name: str
    """Without its folder, which says nothing elsewhere."""
    sha256: str
    """Of the whole file."""


class ServedModel(nn.Module):
    """The global model with what is known of its images; called with a tensor it is the model itself.

    Args:
        model: images `[b, C, H, W]` as `spec` normalises them -> logits `[b, c]`.
        class_names: c of them, in the order of the logits.
        temperature: what logits are divided by before they become probabilities; 1 where nobody calibrated it.
        tones: of the image files that it was trained on.
        source: its file; None where it came from none.
    """

    def __init__(
        self,
        model: nn.Module,
        spec: DataSpec,
        class_names: tuple[str, ...],
        *,
        temperature: float,
        tones: Tones = USUAL,
        source: Source | None = None,
    ) -> None:
        super().__init__()
        self.model, self.spec, self.class_names = model, spec, class_names
        self.temperature, self.tones, self.source = temperature, tones, source
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Normalised images `[b, C, H, W]` -> logits `[b, c]`, not calibrated."""
        return self.model(x)

    @torch.no_grad()
    def probabilities(self, x: Tensor) -> Tensor:
        """Normalised images `[b, C, H, W]` -> calibrated probabilities `[b, c]`, in double precision.

        Always those of evaluation mode: in training mode an image's answer would hang on the others of its batch, and
        asking would change the model.
        """
        with evaluating(self):
            logits = at_least_float32(self(x))
        return (logits.double() / self.temperature).softmax(dim=1)

    def predict(
        self,
        images: "Image.Image | str | Path | Tensor | NDArray[Any] | Iterable[Any]",
        *,
        abstain: float = 0.0,
        max_value: float | None = None,
        background: int | None = None,
    ) -> list[Prediction]:
        """The class of every image, in their order.

        Args:
            images: Pillow's pictures, paths, folders, tensors or NumPy arrays `[C, H, W]` or `[b, C, H, W]` (uint8, or
                floats in [0, 1] that are not normalised), or several of them. They are resized and converted as
                training images were.
            abstain: no class is named where the most probable one is less probable than this.
            max_value: which value is white in images of more than 8 bits; None: that of the images it was trained on.
            background: the grey from 0 to 255 behind transparent pixels; None: likewise.

        Raises:
            OneshotError: naming the argument that is out of its range, or the first image that cannot be used.
        """
        found = []
        for answer in self.answers(images, abstain=abstain, max_value=max_value, background=background):
            if isinstance(answer, Picture):
                raise OneshotError(answer.problem)
            found.append(answer)
        return found

    def answers(
        self, images: Any, *, abstain: float = 0.0, max_value: float | None = None, background: int | None = None
    ) -> Iterator[Prediction | Picture]:
        """The same image by image; for one that cannot be used the picture that says why.

        Raises:
            OneshotError: at once, an argument is out of its range; later, there is no image, or something is none.
        """
        least = _checked("abstain", abstain)
        said = {"max_value": max_value, "background": background}
        given = {name: _checked(name, value) for name, value in said.items() if value is not None}
        how = Decoding(self.spec.size, self.spec.channels, replace(self.tones, **given))
        return self._answers(pictures(images, how), least)

    def _answers(self, decoded: Iterator[Picture], abstain: float) -> Iterator[Prediction | Picture]:
        while batch := list(islice(decoded, AT_ONCE)):
            told = iter(self._predicted([one for one in batch if one.pixels is not None], abstain))
            yield from (one if one.pixels is None else next(told) for one in batch)

    def _predicted(self, batch: list[Picture], abstain: float) -> list[Prediction]:
        """One forward pass."""
        if not batch:
            return []
        device = place_of(self.model)
        pixels = torch.from_numpy(np.stack([one.pixels for one in batch if one.pixels is not None]))
        kind = next((each.dtype for each in self.model.parameters() if each.is_floating_point()), torch.float32)
        rows = self.probabilities(self.spec.to_input(pixels.to(device)).to(kind)).tolist()
        return [self._prediction(one.name, row, abstain) for one, row in zip(batch, rows, strict=True)]

    def _prediction(self, name: str, row: list[float], abstain: float) -> Prediction:
        best = max(range(len(row)), key=row.__getitem__)
        label = self.class_names[best] if row[best] >= abstain else None
        return Prediction(name, label, row[best], dict(zip(self.class_names, row, strict=True)))


def _checked(name: str, value: Any) -> Any:
    """What a caller said, a number of NumPy or torch as Python's."""
    plain = value.item() if isinstance(value, np.generic | Tensor) and value.ndim == 0 else value
    if wanted := problem(plain, CHOICES[name]):
        raise OneshotError(f"{name}={shown(value)}: must be {wanted}")
    return plain
