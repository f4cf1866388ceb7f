"""Whether what a data set is put together from can be one: images, their labels, and what pixels are normalised by.

Each function gives what is wrong and what would be right, in words that follow a name; None where nothing is.
"""

from typing import Any

import torch
from torch import Tensor

from oneshot_fl.fits import problem, shown
from oneshot_fl.values import Deviations, Means


def flaw_of_parts(train_images: Any, train_labels: Any, test_images: Any, test_labels: Any) -> str | None:
    """Of the images and labels of both parts."""
    return _flaw_of_part("train", train_images, train_labels) or _flaw_of_part("test", test_images, test_labels)


def _flaw_of_part(part: str, images: Any, labels: Any) -> str | None:
    if found := _flaw_of_tensor(f"{part}_images", images) or _flaw_of_tensor(f"{part}_labels", labels):
        return found
    if images.dtype != torch.uint8:
        return (
            f"{part}_images: must be torch.uint8, from 0 (black) to 255 (white), not {images.dtype}; pixels in [0, 1] "
            "become that by (255 * pixels).round().byte()"
        )
    if images.ndim != 4:
        return f"{part}_images: must have the shape [n, C, H, W], not {shape_of(images)}"
    if labels.dtype != torch.int64 or labels.ndim != 1:
        return f"{part}_labels: must be torch.int64 of the shape [n], not {labels.dtype} {shape_of(labels)}"
    if len(images) != len(labels):
        return f"{part}_labels: must be one for each of {len(images)} {part}_images, not {len(labels)}"
    return None


def _flaw_of_tensor(name: str, tensor: Any) -> str | None:
    if not isinstance(tensor, Tensor):
        return f"{name}: must be a torch tensor, not {kind_of(tensor)}"
    if tensor.layout != torch.strided:
        return f"{name}: must be dense, not {tensor.layout}; .to_dense() makes it that"
    if tensor.device.type != "cpu":
        return f"{name}: must lie in the CPU's memory, not on {tensor.device}; each run moves them by itself"
    return None


def flaw_of_scale(mean: Any, std: Any, channels: int) -> str | None:
    """Of the numbers that pixels are normalised by."""
    for name, value, hint in (("mean", mean, Means), ("std", std, Deviations)):
        if wanted := problem(value, hint):
            return f"{name}={shown(value)}: must be {wanted}"
        if len(value) not in (1, channels):
            return f"{name}={shown(value)}: must be one number, or one for each of {channels} channels"
    return None


def kind_of(value: Any) -> str:
    """What a value is, to be told to whoever made it."""
    return "None" if value is None else f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")


def shape_of(array: Any) -> str:
    """As an array's shape is written in a message: `[n, C, H, W]`."""
    return str(list(array.shape))
