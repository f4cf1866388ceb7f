"""Random crops and flips of whole batches: every sample draws its own, and no loop runs over samples."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

PADDING = 4
"""Black pixels around an image before it is cropped; 4 is usual for CIFAR (He et al. 2016, Sec. 4.2)."""


def random_crop(images: Tensor, rng: torch.Generator) -> Tensor:
    """uint8 `[b, C, H, W]`: pad with black, then each sample is a window of the old size anywhere in it."""
    return _window(F.pad(images, (PADDING,) * 4), PADDING, random_corners(len(images), PADDING, rng))


def random_shift(images: Tensor, most: int, rng: torch.Generator) -> Tensor:
    """`[b, C, H, W]`: each sample is moved by up to `most` pixels either way, mirrored where it is moved away from."""
    return shifted(images, most, random_corners(len(images), most, rng))


def shifted(images: Tensor, most: int, corners: Tensor) -> Tensor:
    """The same to corners that are drawn already."""
    return _window(F.pad(images, (most,) * 4, mode="reflect"), most, corners)


def random_corners(count: int, padding: int, rng: torch.Generator) -> Tensor:
    """The row and the column at which each sample's window begins in its padded image, `[2, b]`."""
    return torch.randint(2 * padding + 1, (2, count), generator=rng)


def _window(padded: Tensor, padding: int, corners: Tensor) -> Tensor:
    """Of each image `[b, C, H + 2 padding, W + 2 padding]` a part of `[C, H, W]`, anywhere in it."""
    rows, columns = (side - 2 * padding for side in padded.shape[2:])
    top, left = corners.to(padded.device)
    everywhere = padded.unfold(2, rows, 1).unfold(3, columns, 1)
    return everywhere[torch.arange(len(padded), device=padded.device), :, top, left]


def random_flip(images: Tensor, rng: torch.Generator) -> Tensor:
    """`[b, C, H, W]`: each sample is mirrored left to right with probability 1/2."""
    return flipped(images, random_sides(len(images), rng))


def flipped(images: Tensor, sides: Tensor) -> Tensor:
    """The same to sides that are drawn already."""
    return torch.where(sides.bool().to(images.device).view(-1, 1, 1, 1), images.flip(3), images)


def random_sides(count: int, rng: torch.Generator) -> Tensor:
    """Which samples are mirrored, `[b]`: 0 or 1."""
    return torch.randint(2, (count,), generator=rng)


AUGMENTATIONS: dict[str, tuple[Callable[[Tensor, torch.Generator], Tensor], ...]] = {
    "none": (),
    "flip": (random_flip,),
    "crop": (random_crop,),
    "crop_flip": (random_crop, random_flip),
}


def augment(images: Tensor, name: str, rng: torch.Generator) -> Tensor:
    """Apply one of `AUGMENTATIONS` to uint8 images `[b, C, H, W]`; draws on the CPU, `none` draws nothing."""
    for step in AUGMENTATIONS[name]:
        images = step(images, rng)
    return images
