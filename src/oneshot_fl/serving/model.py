"""A global model that can be asked about images as they come."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import USUAL, Decoding, Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.serving.pictures import Picture, pictures

if TYPE_CHECKING:
    from PIL import Image

AT_ONCE = 128
"""Images in a batch."""


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


class ServedModel(nn.Module):
    """The global model with what is known of its images; called with a tensor it is the model itself.

    Args:
        model: images `[b, C, H, W]` as `spec` normalises them -> logits `[b, c]`.
        class_names: c of them, in the order of the logits.
        temperature: what logits are divided by before they become probabilities; 1 where nobody calibrated it.
        tones: of the image files that it was trained on.
    """

    def __init__(
        self,
        model: nn.Module,
        spec: DataSpec,
        class_names: tuple[str, ...],
        *,
        temperature: float,
        tones: Tones = USUAL,
    ) -> None:
        super().__init__()
        self.model, self.spec, self.class_names = model, spec, class_names
        self.temperature, self.tones = temperature, tones
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Normalised images `[b, C, H, W]` -> logits `[b, c]`, not calibrated."""
        return self.model(x)

    @torch.no_grad()
    def probabilities(self, x: Tensor) -> Tensor:
        """Normalised images `[b, C, H, W]` -> calibrated probabilities `[b, c]`, in double precision."""
        return (at_least_float32(self(x)).double() / self.temperature).softmax(dim=1)

    def predict(
        self,
        images: "Image.Image | str | Path | Tensor | Iterable[Any]",
        *,
        abstain: float = 0.0,
        max_value: float | None = None,
        background: int | None = None,
    ) -> list[Prediction]:
        """The class of every image, in their order.

        Args:
            images: Pillow's pictures, paths, folders, tensors `[C, H, W]` or `[b, C, H, W]` (uint8, or floats in [0, 1]
                that are not normalised), or several of them. They are resized and converted as training images were.
            abstain: no class is named where the most probable one is less probable than this.
            max_value: which value is white in images of more than 8 bits; None: that of the images it was trained on.
            background: the grey from 0 to 255 behind transparent pixels; None: likewise.

        Raises:
            OneshotError: naming the first image that cannot be used.
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
        """The same image by image; for one that cannot be used the picture that says why."""
        own = self.tones
        white = own.max_value if max_value is None else max_value
        tones = Tones(white, own.background if background is None else background)
        decoded = pictures(images, Decoding(self.spec.size, self.spec.channels, tones))
        while batch := list(islice(decoded, AT_ONCE)):
            told = iter(self._predicted([one for one in batch if one.pixels is not None], abstain))
            yield from (one if one.pixels is None else next(told) for one in batch)

    def _predicted(self, batch: list[Picture], abstain: float) -> list[Prediction]:
        """One forward pass."""
        if not batch:
            return []
        device = next(self.model.parameters()).device
        pixels = torch.from_numpy(np.stack([one.pixels for one in batch if one.pixels is not None]))
        rows = self.probabilities(self.spec.to_input(pixels.to(device))).tolist()
        return [self._prediction(one.name, row, abstain) for one, row in zip(batch, rows, strict=True)]

    def _prediction(self, name: str, row: list[float], abstain: float) -> Prediction:
        best = max(range(len(row)), key=row.__getitem__)
        label = self.class_names[best] if row[best] >= abstain else None
        return Prediction(name, label, row[best], dict(zip(self.class_names, row, strict=True)))
