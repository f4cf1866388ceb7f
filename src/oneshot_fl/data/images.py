"""Image files as tensors: found in class folders, decoded once, kept in the store."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oneshot_fl.errors import OneshotError
from oneshot_fl.store import Artifact, Store

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}

Files = list[tuple[Path, int]]
"""Image files and their labels."""


def subfolders(folder: Path) -> list[str]:
    """The sorted names of the folders in `folder`; none where it does not exist."""
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def images_in(folder: Path) -> list[Path]:
    """The image files of one folder, sorted by name."""
    return sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)


def class_files(folder: Path, classes: list[str], *, below: tuple[str, ...] = ("",)) -> Files:
    """The images of `<folder>/<class>/`, or of the folders `below` that; labels follow the order of `classes`.

    Raises:
        OneshotError: there is none, or a folder with images is not among the classes.
    """
    paths = {
        name: [path for inner in below for path in images_in(folder / name / inner)] for name in subfolders(folder)
    }
    unknown = [name for name, found in paths.items() if found and name not in classes]
    if unknown:
        raise OneshotError(f"data.root: {folder} has classes that the training set has not: {', '.join(unknown)}")
    files = [(path, label) for label, name in enumerate(classes) for path in paths.get(name, [])]
    if not files:
        raise OneshotError(f"data.root: no image file in {folder}/<class>/ ({', '.join(sorted(SUFFIXES))})")
    return files


def read_images(
    root: Path, files: Mapping[str, Files], *, cache: str, size: int | None, channels: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Images uint8 `[n, C, size, size]` and labels `[n]` of every named part of `files`, all below `root`.

    With `size=None` all images must already be square and of one size; with a number they are resized to it. A changed,
    added or removed file makes a new entry in the store `cache`.

    Raises:
        OneshotError: a file is no image, or sizes differ.
    """
    inputs = {
        "size": size,
        "channels": channels,
        "files": {part: [_identity(root, path) for path, _ in found] for part, found in files.items()},
    }
    paths = {part: [path for path, _ in found] for part, found in files.items()}
    artifact = Store(Path(cache)).get_or_make("images", inputs, lambda _: _decode_all(paths, size, channels))
    return {
        part: (artifact.tensors[f"{part}_images"], torch.tensor([label for _, label in found]))
        for part, found in files.items()
    }


def _identity(root: Path, path: Path) -> str:
    status = path.stat()
    return f"{path.relative_to(root)}:{status.st_size}:{status.st_mtime_ns}"


def _decode_all(paths: Mapping[str, list[Path]], size: int | None, channels: int) -> Artifact:
    first = next(path for part in paths.values() for path in part)
    side = _decode(first, size, channels).shape[1]
    tensors = {}
    for part, found in paths.items():
        images = np.empty((len(found), channels, side, side), dtype=np.uint8)  # filled in place: they may be gigabytes
        for number, path in enumerate(found):
            image = _decode(path, size, channels)
            _check_size(path, image, side)
            images[number] = image
        tensors[f"{part}_images"] = torch.from_numpy(images)
    return Artifact(tensors, facts={})


def _decode(path: Path, size: int | None, channels: int) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            picture = image.convert("RGB" if channels == 3 else "L")
    except (UnidentifiedImageError, OSError) as error:
        raise OneshotError(f"data.root: {path} is not a readable image: remove or replace it") from error
    if size is not None and picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(picture).reshape(picture.height, picture.width, channels).transpose(2, 0, 1)


def _check_size(path: Path, image: np.ndarray, side: int) -> None:
    if image.shape[1:] != (side, side):
        width, height = image.shape[2], image.shape[1]
        raise OneshotError(
            f"data.size: {path} is {width}x{height}, but images must be square and of one size: "
            f"set data.size, for instance data.size={side}, to resize them all"
        )
