"""Whatever a user calls an image, as the pixels that a model is asked about: decoded as `data=image_folder` does it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneshot_fl.data.decode import Decoding, UnsuitableImageError, decoded_file, decoded_image
from oneshot_fl.data.images import images_in
from oneshot_fl.errors import OneshotError

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Picture:
    """One image, or what is wrong with it."""

    name: str
    """Its path; of what has none, its number."""
    pixels: NDArray[np.uint8] | None
    """`[C, size, size]`; None where it cannot be used."""
    problem: str = ""
    """One line that names it."""


def pictures(given: "Image.Image | str | Path | Tensor | Iterable[object]", how: Decoding) -> Iterator[Picture]:
    """Every image in what was given, in its order; folders with all below them.

    Raises:
        OneshotError: a file or folder does not exist, a folder holds no image, or something is no image at all.
    """
    numbered = 0
    for source in _one_by_one(given):
        if isinstance(source, Path):
            yield _from_file(source, how)
        else:
            yield _from_memory(str(numbered), source, how)
            numbered += 1


def _one_by_one(given: object) -> Iterator["Path | Image.Image"]:
    from PIL import Image

    if isinstance(given, str | Path):
        yield from _files(Path(given))
    elif isinstance(given, Image.Image):
        yield given
    elif isinstance(given, Tensor):
        yield from _from_pixels(given)
    elif isinstance(given, Iterable):
        for each in given:
            yield from _one_by_one(each)
    else:
        raise OneshotError(f"images: {type(given).__name__} is no image; give paths, Pillow's pictures or tensors")


def _files(path: Path) -> list[Path]:
    """The file itself, or all images of a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise OneshotError(f"{path}: there is no such file or folder; give images or folders of images")
    if not (found := images_in(path)):
        raise OneshotError(f"{path}: holds no image file; give images or folders of images")
    return found


def _from_pixels(pixels: Tensor) -> "Iterator[Image.Image]":
    """Images `[C, H, W]` or `[b, C, H, W]` as Pillow's, so that they are resized and converted as files are."""
    from PIL import Image

    batch = pixels.detach().cpu()
    batch = batch if batch.ndim == 4 else batch[None]
    if batch.ndim != 4 or batch.shape[1] not in (1, 3):
        raise OneshotError(
            f"images: a tensor of shape {tuple(pixels.shape)} is no image; give [C, H, W] or [b, C, H, W] with C 1 or 3"
        )
    for image in _bytes(batch):
        array = image.permute(1, 2, 0).numpy()
        yield Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def _bytes(pixels: Tensor) -> Tensor:
    """uint8 as it is, floats in [0, 1] scaled to it."""
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point() or not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise OneshotError(
            f"images: a tensor of {str(pixels.dtype).removeprefix('torch.')} has values outside of what pixels are; "
            "give uint8, or floats from 0 (black) to 1 (white) that are not normalised"
        )
    return (pixels * 255).round().to(torch.uint8)


def _from_file(path: Path, how: Decoding) -> Picture:
    try:
        return Picture(str(path), decoded_file(path, how))
    except UnsuitableImageError as error:
        return Picture(str(path), None, f"{path} {error.what}{_hint(error)}")


def _from_memory(name: str, image: "Image.Image", how: Decoding) -> Picture:
    try:
        return Picture(name, decoded_image(image, how))
    except UnsuitableImageError as error:
        return Picture(name, None, f"image {name} {error.what}{_hint(error)}")


def _hint(error: UnsuitableImageError) -> str:
    return "" if error.max_value is None else "; say with --max-value (max_value=) which value is white"
