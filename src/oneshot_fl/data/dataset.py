"""What a data set is: uint8 images and labels in memory, and the spec that models are built from."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from oneshot_fl.data.class_names import flaw_of_names
from oneshot_fl.data.decode import USUAL, Tones
from oneshot_fl.data.sound_parts import flaw_of_parts, flaw_of_scale
from oneshot_fl.errors import OneshotError

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Types of labels that are taken."""


@dataclass(frozen=True)
class DataSpec:
    """Everything that models and generators need to know about a data set.

    `mean` and `std` (one number per channel, in units of [0, 1] pixels) define the space in which models see images.
    """

    channels: int
    size: int
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def grey(self) -> bool:
        """Whether images have one channel, so that what is for colour only leaves them alone."""
        return self.channels == 1

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels in [0, 1], `[b, C, H, W]`, to the space that models see."""
        return (pixels - channelwise(self.mean, pixels)) / channelwise(self.std, pixels)

    def to_input(self, images: Tensor) -> Tensor:
        """Images as uint8, `[b, C, H, W]`, to the space that models see."""
        return self.normalise(images.float() / 255)

    def to_pixels(self, inputs: Tensor) -> Tensor:
        """The inverse of `normalise`, clipped to [0, 1]."""
        return self._pixels(inputs).clamp(0, 1)

    def to_bytes(self, inputs: Tensor) -> Tensor:
        """The inverse of `to_input`, but that it rounds, and cuts what lies beyond black or white: uint8."""
        return (self.to_pixels(inputs.float()) * 255).round().to(torch.uint8)

    def share_beyond(self, inputs: Tensor) -> float:
        """Of all pixels of images as models see them, how many are further than rounding beyond black or white."""
        pixels = self._pixels(inputs.float())
        return float(((pixels - pixels.clamp(0, 1)).abs() > 1 / 255).float().mean())

    def brightest(self, inputs: Tensor) -> float:
        """The brightest pixel of images as models see them, where black is 0 and white is 1."""
        return float(self._pixels(inputs.detach().float()).max())

    def _pixels(self, inputs: Tensor) -> Tensor:
        return inputs * channelwise(self.std, inputs) + channelwise(self.mean, inputs)


def channelwise(values: tuple[float, ...], like: Tensor) -> Tensor:
    """One number per channel as `[1, C, 1, 1]`, of the type and on the device of `like`."""
    return _channelwise(values, like.dtype, like.device)


@lru_cache
def _channelwise(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Kept, because a copy to an accelerator waits; outside of inference mode, whose tensors take no gradient."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device).view(1, -1, 1, 1)


@dataclass(frozen=True)
class Dataset:
    """A data set in memory: images uint8 `[n, C, H, W]`, labels int64 `[n]`."""

    name: str
    spec: DataSpec
    class_names: tuple[str, ...]
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    train_domains: Tensor | None = None
    """The domain of each training sample, int64 `[n]`, an index into `domain_names`; None where there are none."""
    domain_names: tuple[str, ...] = ()
    tones: Tones = USUAL
    """Of the files that it was read from."""
    notes: tuple[str, ...] = ()
    """What a user should know of it although it is no mistake."""

    def to(self, device: torch.device) -> "Dataset":
        """The same data set with its tensors on `device`; what was hashed is not hashed again."""
        tensors: dict[str, Any] = {name: tensor.to(device) for name, tensor in self._tensors().items()}
        moved = replace(self, **tensors)
        if "fingerprint" in self.__dict__:
            moved.__dict__["fingerprint"] = self.fingerprint
        return moved

    def for_development(self) -> "Dataset":
        """The last sixth of each class's training images to test on, the rest to train on; no test image is left."""
        held = _last_sixth(self.train_labels)
        return replace(
            self,
            train_images=self.train_images[~held],
            train_labels=self.train_labels[~held],
            test_images=self.train_images[held],
            test_labels=self.train_labels[held],
            train_domains=None if self.train_domains is None else self.train_domains[~held],
        )

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors that there are, by field."""
        names = ("train_images", "train_labels", "test_images", "test_labels", "train_domains")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over spec, images, labels and domains: the data set's part of every artifact's key."""
        digest = hashlib.sha256(repr(self.spec).encode())
        for tensor in self._tensors().values():
            digest.update(repr(tuple(tensor.shape)).encode())
            digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.hexdigest()


def _last_sixth(labels: Tensor) -> Tensor:
    """Which samples are the last sixth of their class, bool `[n]`: folders come class by class, others mixed.

    The only sample of a class stays among the first.
    """
    counts = labels.bincount()
    order = labels.argsort(stable=True)
    place = torch.empty_like(labels)
    place[order] = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[order]]
    return place >= (counts * 5 // 6).clamp_min(1)[labels]


def make_dataset(
    *,
    name: str,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    class_names: tuple[str, ...],
    mean: float | list[float],
    std: float | list[float],
    tones: Tones = USUAL,
    notes: tuple[str, ...] = (),
    source: str | None = None,
) -> Dataset:
    """Put tensors together into a `Dataset`; `mean` and `std` are one number, or a list of one or of one per channel.

    `source` is what an error begins with where that is another thing than the data set's name.

    Raises:
        OneshotError: there are other things than images `[n, C, H, W]` in uint8 with a label each, names of classes
            that a model file can hold, and numbers to normalise by.
    """
    parts, means, deviations = (*_pair(train), *_pair(test)), _as_list(mean), _as_list(std)
    if found := (
        flaw_of_parts(*parts) or flaw_of_names(class_names) or flaw_of_scale(means, deviations, parts[0].shape[1])
    ):
        raise OneshotError(f"{source or f'data={name}'}: {found}")
    channels, size = parts[0].shape[1:3]
    spec = DataSpec(
        channels=channels,
        size=size,
        classes=len(class_names),
        mean=tuple(means) * (channels if len(means) == 1 else 1),
        std=tuple(deviations) * (channels if len(deviations) == 1 else 1),
    )
    return Dataset(name, spec, tuple(class_names), *parts, tones=tones, notes=notes)


def _as_list(numbers: Any) -> Any:
    """One number as a list of it; other things as they are, to be told of."""
    return [numbers] if isinstance(numbers, int | float) else numbers


def _pair(part: Any) -> tuple[Any, Any]:
    """Images, and labels that are whole numbers of any type as int64; other things as they are, to be told of."""
    images, labels = part if isinstance(part, list | tuple) and len(part) == 2 else (part, None)
    if isinstance(labels, Tensor) and labels.dtype in WHOLE:
        labels = labels.long()
    return images, labels
