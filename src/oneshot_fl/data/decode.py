"""One image file as bytes in a data set's channels and size: every mode is read on purpose or refused."""

import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from oneshot_fl.errors import OneshotError
from oneshot_fl.values import Rule

if TYPE_CHECKING:
    from PIL import Image, ImageFile

UNREADABLE = (
    OSError,
    ValueError,
    SyntaxError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    EOFError,
    struct.error,
    zlib.error,
)
"""What Pillow raises over files that are no images, cut short or damaged."""
DEEP = ("I", "F")
"""Modes of one channel with more than 8 bits, besides those that begin with `I;16`."""
WHITE_OF_16_BITS = 65535

Byte = Annotated[int, Rule("a whole number from 0 (black) to 255 (white)", lambda value: 0 <= value <= 255)]


@dataclass(frozen=True)
class Decoding:
    """What images are turned into: one choice for the whole data set, so that equal values stay equal in every file."""

    size: int | None
    """Pixels a side that images are resized to; None: as they are."""
    channels: int
    """3 (colour) or 1 (grey)."""
    max_value: float | None = None
    """The value that is white in images of more than 8 bits, and becomes 255; None: such images are refused."""
    background: int = 128
    """The grey from 0 to 255 behind transparent pixels; mid-grey hides neither white nor black figures."""


def decode(path: Path, how: Decoding) -> NDArray[np.uint8]:
    """One file as uint8 `[C, height, width]`, turned as its EXIF orientation says.

    Raises:
        OneshotError: the file is no image, damaged, too large or animated, or has more than 8 bits and `how.max_value`
            does not say what they mean.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                picture = _convert(path, image, how)
    except OneshotError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise OneshotError(
            f"data.root: {path} claims more than {Image.MAX_IMAGE_PIXELS} pixels: remove it, or make it smaller"
        ) from error
    except UNREADABLE as error:
        raise OneshotError(f"data.root: {path} is not a readable image: remove or replace it") from error
    if how.size is not None and picture.size != (how.size, how.size):
        picture = picture.resize((how.size, how.size), Image.Resampling.BILINEAR)
    return np.asarray(picture).reshape(picture.height, picture.width, how.channels).transpose(2, 0, 1)


def _convert(path: Path, image: "ImageFile.ImageFile", how: Decoding) -> "Image.Image":
    """The picture with 8 bits in each of the channels that are wanted."""
    from PIL import ImageOps

    _refuse_several(path, image)
    deep_colour = image.mode not in DEEP and not image.mode.startswith("I;16") and ";16" in str(image.tile)
    image.load()
    upright = ImageOps.exif_transpose(image)
    if deep_colour:
        _check_deep_colour(path, how)
    elif upright.mode in DEEP or upright.mode.startswith("I;16"):
        upright = _scaled(path, upright, how.max_value)
    if upright.has_transparency_data:
        upright = _composited(upright, how.background)
    return upright.convert("RGB" if how.channels == 3 else "L")


def _refuse_several(path: Path, image: "ImageFile.ImageFile") -> None:
    """Frames after the first would be lost; those of MPO, which cameras write as JPEG, are another view of it."""
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":
        raise OneshotError(f"data.root: {path} holds {frames} frames: make each of them a file, or remove all but one")


def _check_deep_colour(path: Path, how: Decoding) -> None:
    """Pillow reads the upper 8 of 16 bits of colour: the whole range of 16 bits, and no other, can be had so."""
    if how.max_value != WHITE_OF_16_BITS:
        raise OneshotError(
            f"data.max_value={_null(how.max_value)}: {path} has 16 bits of colour; set data.max_value="
            f"{WHITE_OF_16_BITS} if they use all of them, else save the images with 8 bits"
        )


def _scaled(path: Path, image: "Image.Image", max_value: float | None) -> "Image.Image":
    """Grey values from 0 to `max_value` as bytes.

    Raises:
        OneshotError: there is no `max_value`, or a value is none or lies outside.
    """
    from PIL import Image

    values = np.asarray(image).astype(np.float64)
    low, high = values.min(), values.max()
    if not np.isfinite(low + high) or low < 0:
        raise OneshotError(f"data.root: {path} has values below 0 or none at all: save it with values from 0 upwards")
    if max_value is None:
        raise OneshotError(
            f"data.max_value=null: {path} has grey values of more than 8 bits, here up to {high:g}; set "
            f"data.max_value to the value that is white in all images, for instance 4095 (12 bits), {WHITE_OF_16_BITS} "
            "(16 bits) or 1.0"
        )
    if high > max_value:
        raise OneshotError(
            f"data.max_value={max_value:g}: {path} has a value of {high:g}; set data.max_value to at least the largest "
            "value of all images"
        )
    return Image.fromarray(np.rint(values * (255 / max_value)).astype(np.uint8))


def _null(value: float | None) -> str:
    return "null" if value is None else f"{value:g}"


def _composited(image: "Image.Image", background: int) -> "Image.Image":
    """Transparent pixels before a grey of this value."""
    from PIL import Image

    behind = Image.new("RGBA", image.size, (background, background, background, 255))
    return Image.alpha_composite(behind, image.convert("RGBA"))
