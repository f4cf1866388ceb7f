"""One image as bytes in a data set's channels and size: every mode is read on purpose or refused."""

import struct
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneshot_fl.errors import OneshotError
from oneshot_fl.values import Rule

if TYPE_CHECKING:
    from PIL import Image

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
NO_IMAGE = ("is not a readable image", "remove or replace it")
"""What is wrong with those, and the remedy."""
DEEP = ("I", "F")
"""Modes of one channel with more than 8 bits, besides those that begin with `I;16`."""
WHITE_OF_8_BITS, WHITE_OF_16_BITS = 255, 65535
BITS, PHOTOMETRIC, PLANAR = 258, 262, 284
"""Tags of TIFF: the bits of each channel, 0 where 0 is white, and 2 where channels lie one behind the other."""
LOW_GREYS = {"L;2": 3, "L;4": 15}
"""White in files of 2 and 4 bits, by the name that Pillow has for them."""
MID_GREY = 128

Byte = Annotated[int, Rule("a whole number from 0 (black) to 255 (white)", lambda value: 0 <= value <= 255)]


@dataclass(frozen=True)
class Tones:
    """What values in image files stand for, where that is not the same everywhere."""

    max_value: float | None = None
    """The value that is white in images of more than 8 bits, and becomes 255; None: such images are refused."""
    background: int = MID_GREY
    """The grey from 0 to 255 behind transparent pixels; mid-grey hides neither white nor black figures."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Tones":
        """Those that a data set was read with; of one that has no such settings the usual ones."""
        return cls(settings.get("max_value"), settings.get("background", MID_GREY))


USUAL = Tones()
"""Images of 8 bits."""


@dataclass(frozen=True)
class Decoding:
    """What images are turned into: one choice for the whole data set, so that equal values stay equal in every file."""

    size: int | None
    """Pixels a side that images are resized to; None: as they are."""
    channels: int
    """3 (colour) or 1 (grey)."""
    tones: Tones = USUAL


class UnsuitableImageError(Exception):
    """An image that cannot be used as it is.

    Args:
        what: follows the image's name in a sentence.
        remedy: what whoever reads a data set should do.
        max_value: the setting, where it does not fit; None: nothing is wrong with it.
    """

    def __init__(self, what: str, remedy: str, *, max_value: str | None = None) -> None:
        super().__init__(what)
        self.what, self.remedy, self.max_value = what, remedy, max_value


class Origin(NamedTuple):
    """Whose images they are, as errors say it."""

    setting: str
    """What chose their folder."""
    white: str | None
    """What says which value is white in them; None: `data.max_value`."""


DATA_SET = Origin("data.root", None)


def decode(
    path: Path, how: Decoding, origin: Origin = DATA_SET, *, content: BinaryIO | None = None
) -> NDArray[np.uint8]:
    """One file of a data set as uint8 `[C, height, width]`, turned as its EXIF orientation says.

    Args:
        path: of the file, as errors name it.
        how: what it is turned into.
        origin: whose image it is.
        content: of the file, where that is read already.

    Raises:
        OneshotError: the file is no image, damaged, too large or animated, or has more than 8 bits and `how.tones`
            does not say what they mean.
    """
    try:
        return decoded_file(path if content is None else content, how)
    except UnsuitableImageError as error:
        if error.max_value is None:
            raise OneshotError(f"{origin.setting}: {path} {error.what}: {error.remedy}") from error
        if origin.white is not None:
            raise OneshotError(f"{origin.setting}: {path} {error.what}; {origin.white}") from error
        raise OneshotError(f"data.max_value={error.max_value}: {path} {error.what}; {error.remedy}") from error


def decoded_file(file: Path | BinaryIO, how: Decoding) -> NDArray[np.uint8]:
    """The same for any file, or for its content, whoever asks.

    Raises:
        UnsuitableImageError: see `decode`.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                return decoded_image(image, how)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        what = f"claims more than {Image.MAX_IMAGE_PIXELS} pixels"
        raise UnsuitableImageError(what, "remove it, or make it smaller") from error
    except UNREADABLE as error:
        raise UnsuitableImageError(*NO_IMAGE) from error


def decoded_image(image: "Image.Image", how: Decoding) -> NDArray[np.uint8]:
    """A picture that is open already.

    Raises:
        UnsuitableImageError: it is animated, empty, cut short or damaged, of a kind that has no colours or greys, or
            has more than 8 bits and `how.tones` does not say what they mean.
    """
    from PIL import Image

    try:
        picture = _convert(image, how)
        if how.size is not None and picture.size != (how.size, how.size):
            picture = picture.resize((how.size, how.size), Image.Resampling.BILINEAR)
    except UNREADABLE as error:
        raise UnsuitableImageError(*NO_IMAGE) from error
    return np.asarray(picture).reshape(picture.height, picture.width, how.channels).transpose(2, 0, 1)


def _convert(image: "Image.Image", how: Decoding) -> "Image.Image":
    """The picture with 8 bits in each of the channels that are wanted."""
    from PIL import ImageOps

    _refuse_several(image)
    if 0 in image.size:
        raise UnsuitableImageError("has no pixels", "remove or replace it")
    deep_colour, header, low = _white_of_colour(image), _pnm_maximum(image), _white_of_low_grey(image)
    image.load()
    upright = ImageOps.exif_transpose(image)
    if deep_colour is not None:
        _check_deep_colour(upright, how.tones, deep_colour)
    elif _is_deep_grey(upright):
        greys = _greys(upright, header)
        upright = _scaled(upright, greys, how.tones.max_value, zero_is_white=_zero_is_white(image))
    elif low is not None:
        _stretch_transparent(upright, low)
    if upright.mode == "LAB":
        upright = upright.convert("RGB")  # Pillow has no way from it to grey
    if upright.has_transparency_data:
        upright = _composited(upright, how.tones.background)
    return upright.convert("RGB" if how.channels == 3 else "L")


def _is_deep_grey(image: "Image.Image") -> bool:
    return image.mode in DEEP or image.mode.startswith("I;16")


def _zero_is_white(image: "Image.Image") -> bool:
    """Whether a TIFF says so: Pillow turns such greys round where they have 8 bits, and keeps deeper ones."""
    return bool(getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == 0)


def _white_of_colour(image: "Image.Image") -> int | None:
    """White in a file with more than 8 bits of colour, of which Pillow reads the upper 8; None: it has no more.

    Raises:
        UnsuitableImageError: such a TIFF has its channels one behind the other, which Pillow takes for 8 bits each.
    """
    if _is_deep_grey(image):
        return None
    tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
    if tags.get(PLANAR) == 2 and max(tags.get(BITS, (8,))) > 8:
        raise UnsuitableImageError(
            "has channels of more than 8 bits one behind the other", "save it with 8 bits, or with them interleaved"
        )
    if ";16" in str(getattr(image, "tile", "")):
        return WHITE_OF_16_BITS
    header = _pnm_maximum(image)
    return header if header is not None and header > WHITE_OF_8_BITS else None


def _pnm_maximum(image: "Image.Image") -> int | None:
    """The largest value of a PGM or PPM by its header, from where Pillow stretches values to 16 or 8 bits.

    Raises:
        UnsuitableImageError: its deep greys are stretched already, and the header is gone.
    """
    if image.format == "PPM" and not getattr(image, "tile", ()) and _is_deep_grey(image):
        raise UnsuitableImageError("was loaded before its header was read", "give its path, or the picture unloaded")
    return next((int(each.args[1]) for each in getattr(image, "tile", ()) if each[0] in ("ppm", "ppm_plain")), None)


def _white_of_low_grey(image: "Image.Image") -> int | None:
    """White in a PNG with 2 or 4 bits of grey, whose pixels Pillow stretches to 8; None: it is none."""
    tiles = getattr(image, "tile", ()) if image.format == "PNG" else ()
    return next((LOW_GREYS[each.args] for each in tiles if each.args in LOW_GREYS), None)


def _stretch_transparent(image: "Image.Image", white: int) -> None:
    """The value of transparent pixels becomes one of 8 bits, as the pixels have."""
    if (clear := image.info.get("transparency")) is not None and clear <= white:
        image.info["transparency"] = clear * WHITE_OF_8_BITS // white


def _greys(image: "Image.Image", stretched_from: int | None) -> NDArray[np.float64]:
    """The values `[height, width]` that the file has."""
    values = np.asarray(image).astype(np.float64)
    return values if stretched_from is None else np.rint(values * stretched_from / WHITE_OF_16_BITS)


def _refuse_several(image: "Image.Image") -> None:
    """Frames after the first would be lost; those of MPO, which cameras write as JPEG, are another view of it."""
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":
        raise UnsuitableImageError(f"holds {frames} frames", "make each of them a file, or remove all but one")


def _check_deep_colour(image: "Image.Image", tones: Tones, white: int) -> None:
    """Pillow reads the upper 8 of 16 bits of colour: the whole range that a file has, and no other, can be had so."""
    if isinstance(image.info.get("transparency"), tuple):  # compared with 8 bits, it would be of other colours too
        raise UnsuitableImageError("has 16 bits of colour and one that is transparent", "save it with 8 bits")
    if tones.max_value != white:
        raise UnsuitableImageError(
            "has 16 bits of colour",
            f"set data.max_value={white} if they use all of them, else save the images with 8 bits",
            max_value=_null(tones.max_value),
        )


def _scaled(
    image: "Image.Image", values: NDArray[np.float64], max_value: float | None, *, zero_is_white: bool
) -> "Image.Image":
    """Grey values from 0 to `max_value` as bytes, beside them which pixels are transparent, where a file says so.

    Where 0 is white, `max_value` is black.

    Raises:
        UnsuitableImageError: there is no `max_value`, or a value is none or lies outside.
    """
    from PIL import Image

    low, high = values.min(), values.max()
    if not np.isfinite(low + high) or low < 0:
        raise UnsuitableImageError("has values below 0 or none at all", "save it with values from 0 upwards")
    if max_value is None:
        raise UnsuitableImageError(
            f"has grey values of more than 8 bits, here up to {high:g}",
            "set data.max_value to the value that is white in all images, for instance 4095 (12 bits), "
            f"{WHITE_OF_16_BITS} (16 bits) or 1.0",
            max_value="null",
        )
    if high > max_value:
        raise UnsuitableImageError(
            f"has a value of {high:g}, more than {max_value:g}",
            "set data.max_value to at least the largest value of all images",
            max_value=f"{max_value:g}",
        )
    greys = max_value - values if zero_is_white else values
    scaled = Image.fromarray(np.rint(greys * (255 / max_value)).astype(np.uint8))
    if (clear := image.info.get("transparency")) is not None:
        scaled.putalpha(Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))
    return scaled


def _null(value: float | None) -> str:
    return "null" if value is None else f"{value:g}"


def _composited(image: "Image.Image", background: int) -> "Image.Image":
    """Transparent pixels before a grey of this value."""
    from PIL import Image

    behind = Image.new("RGBA", image.size, (background, background, background, 255))
    return Image.alpha_composite(behind, image.convert("RGBA"))
