"""Whatever a user calls an image, as the pixels that a model is asked about: decoded as `data=image_folder` does it."""

import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneshot_fl.data.decode import Decoding, UnsuitableImageError, decoded_file, decoded_image
from oneshot_fl.data.images import Unusable, images_and_unusable_in, misnamed_in
from oneshot_fl.disk import reason
from oneshot_fl.errors import OneshotError, printable

if TYPE_CHECKING:
    from PIL import Image

TEXT = re.compile(r"[^\udc80-\udcff]+")
"""All but what Python makes of bytes that are not UTF-8 (`surrogateescape`)."""
NUMBERS = "biufc"
"""Kinds of NumPy arrays that hold numbers; others may hold paths or pictures."""
STILL_ENCODED = "give its path, or open it first: PIL.Image.open(file), of bytes PIL.Image.open(io.BytesIO(data))"


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

    Where there is none at a path, or none that is a file, the picture says so and the others follow.

    Raises:
        OneshotError: there is no image at any path, or something is no image at all.
    """
    numbered, found = 0, False
    absent: list[Picture] = []  # waits for the first image: where none comes it is the error
    for source in _one_by_one(given):
        if isinstance(source, Picture) and not found:
            absent.append(source)
            continue
        if not found:
            yield from absent
            found = True
        if isinstance(source, Picture):
            yield source
        elif isinstance(source, Path):
            yield _from_file(source, how)
        else:
            yield _from_memory(str(numbered), source, how)
            numbered += 1
    if absent and not found:
        raise OneshotError("; ".join(one.problem for one in absent))


def unread_in(paths: Iterable[Path]) -> list[str]:
    """A line on each folder of them with files that are no images by their names, which `pictures` leaves out."""
    return [on_one_line(line) for path in paths if path.is_dir() for line in misnamed_in(path)]


def _one_by_one(given: object) -> Iterator["Path | Image.Image | Picture"]:
    """Files and pictures that are still to be decoded; what is no file as the picture that says so."""
    from PIL import Image

    if isinstance(given, str | Path):
        yield from _files(Path(given))
    elif isinstance(given, Image.Image):
        yield given
    elif isinstance(given, Tensor):
        yield from _from_pixels(given)
    elif isinstance(given, np.ndarray) and given.dtype.kind in NUMBERS:
        yield from _from_pixels(_tensor(given))
    elif isinstance(given, Iterable) and not _is_undecoded(given):
        for each in given:
            yield from _one_by_one(each)
    else:
        remedy = STILL_ENCODED if _is_undecoded(given) else "give paths, Pillow's pictures, tensors or NumPy arrays"
        raise OneshotError(f"images: {type(given).__name__} is no image; {remedy}")


def _is_undecoded(given: object) -> bool:
    """Whether these are the bytes of a file, or a file that is open: both would be gone through number by number."""
    return isinstance(given, bytes | bytearray | memoryview) or hasattr(given, "read")


def _files(path: Path) -> Iterator[Path | Picture]:
    """The file itself, or all images of a folder."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        yield _absent(path, "is a link to nothing" if path.is_symlink() else "there is no such file or folder")
        return
    except (OSError, ValueError) as error:  # a ValueError is about a letter that no path can have
        yield _absent(path, f"cannot be read ({reason(error)})")
        return
    if stat.S_ISREG(mode):
        yield path
    elif not stat.S_ISDIR(mode):
        yield _absent(path, "is neither a file nor a folder")
    elif not (found := images_and_unusable_in(path)):
        yield _absent(path, "holds no image file")
    else:
        yield from (_irregular(each) if isinstance(each, Unusable) else each for each in found)


def _absent(path: Path, what: str) -> Picture:
    return _unusable(str(path), f"{path}: {what}; give images or folders of images")


def _irregular(found: Unusable) -> Picture:
    return _unusable(str(found.path), f"{found.path} {found.what}: {found.remedy}")


def _unusable(name: str, problem: str) -> Picture:
    return Picture(name, None, on_one_line(problem))


def on_one_line(text: str) -> str:
    """What a name of somebody else's, in which there may be line breaks, can make no second line of.

    Letters that stand for the bytes of a name that is not UTF-8 stay: whatever prints them escapes them, or gives the
    bytes back.
    """
    return TEXT.sub(lambda found: printable(found[0]), text)


def _from_pixels(pixels: Tensor) -> "Iterator[Image.Image]":
    """Images `[C, H, W]` or `[b, C, H, W]` as Pillow's, so that they are resized and converted as files are."""
    from PIL import Image

    batch = pixels.detach().cpu()
    batch = batch if batch.ndim == 4 else batch[None]
    if batch.ndim != 4 or batch.shape[1] not in (1, 3):
        raise OneshotError(
            f"images: pixels of shape {list(pixels.shape)} are no image; give [C, H, W] or [b, C, H, W] with C 1 or 3, "
            "or Image.fromarray(array) of Pillow where the channels come last"
        )
    for image in _bytes(batch):
        array = image.permute(1, 2, 0).numpy()
        yield Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def _bytes(pixels: Tensor) -> Tensor:
    """uint8 as it is, floats in [0, 1] scaled to it."""
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point() or not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise _no_pixels(str(pixels.dtype).removeprefix("torch."))
    return (pixels * 255).round().to(torch.uint8)


def _tensor(array: NDArray[Any]) -> Tensor:
    """The same numbers as torch takes them: in this machine's order of bytes, one behind the other, and writable."""
    try:
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
    except TypeError as error:
        raise _no_pixels(str(array.dtype)) from error


def _no_pixels(dtype: str) -> OneshotError:
    return OneshotError(
        f"images: {dtype} has values outside of what pixels are; give uint8, or floats from 0 (black) to 1 (white) "
        "that are not normalised"
    )


def _from_file(path: Path, how: Decoding) -> Picture:
    try:
        return Picture(str(path), decoded_file(path, how))
    except UnsuitableImageError as error:
        return _unusable(str(path), f"{path} {error.what}{_hint(error)}")


def _from_memory(name: str, image: "Image.Image", how: Decoding) -> Picture:
    try:
        return Picture(name, decoded_image(image, how))
    except UnsuitableImageError as error:
        return _unusable(name, f"image {name} {error.what}{_hint(error)}")


def _hint(error: UnsuitableImageError) -> str:
    white = "; say with --max-value (max_value=) which value is white"
    return f": {error.remedy}" if error.max_value is None else white
