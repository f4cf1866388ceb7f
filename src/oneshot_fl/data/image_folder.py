"""Bring your own data: a folder with `train/<class>/*` and `test/<class>/*`."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oneshot_fl.artifacts import Artifact, Store
from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.errors import OneshotError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


def image_folder(
    *, root: str, cache: str, size: int | None, channels: int, mean: list[float], std: list[float]
) -> Dataset:
    """Read every image below `root` once, as uint8 `[n, C, size, size]`, and keep the tensors in the store `cache`.

    Classes are the sorted names of the folders in `train`. With `size=None` all images must already be square and of
    one size; with a number they are resized to it. A changed, added or removed file makes a new cache entry.

    Raises:
        OneshotError: a folder is missing or empty, a class is in `test` only, a file is no image, sizes differ.
    """
    folder = Path(root).absolute()
    classes = _classes(folder)
    files = {split: _files(folder, split, classes) for split in ("train", "test")}
    inputs = {
        "size": size,
        "channels": channels,
        "files": {split: [_identity(folder, path) for path, _ in found] for split, found in files.items()},
    }
    artifact = Store(Path(cache)).get_or_make("images", inputs, lambda _: _decode_all(files, size, channels))
    tensors = artifact.tensors
    return make_dataset(
        name=folder.name,
        train=(tensors["train_images"], tensors["train_labels"]),
        test=(tensors["test_images"], tensors["test_labels"]),
        class_names=tuple(classes),
        mean=mean,
        std=std,
    )


def _subfolders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []


def _classes(folder: Path) -> list[str]:
    classes = _subfolders(folder / "train")
    if len(classes) < 2:
        raise OneshotError(
            f"data.root: {folder}/train holds {len(classes)} class folders, at least 2 are needed: "
            "set data.root to a folder with train/<class>/* and test/<class>/* images"
        )
    unknown = sorted(set(_subfolders(folder / "test")) - set(classes))
    if unknown:
        raise OneshotError(f"data.root: {folder}/test has classes that train has not: {', '.join(unknown)}")
    return classes


def _files(folder: Path, split: str, classes: list[str]) -> list[tuple[Path, int]]:
    found = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((folder / split / name).glob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise OneshotError(f"data.root: no image file in {folder}/{split}/<class>/ ({', '.join(sorted(SUFFIXES))})")
    return found


def _identity(folder: Path, path: Path) -> str:
    status = path.stat()
    return f"{path.relative_to(folder)}:{status.st_size}:{status.st_mtime_ns}"


def _decode_all(files: dict[str, list[tuple[Path, int]]], size: int | None, channels: int) -> Artifact:
    tensors: dict[str, Tensor] = {}
    for split, found in files.items():
        images = [_decode(path, size, channels) for path, _ in found]
        _check_sizes([path for path, _ in found], images)
        tensors[f"{split}_images"] = torch.from_numpy(np.stack(images))
        tensors[f"{split}_labels"] = torch.tensor([label for _, label in found])
    return Artifact(tensors=tensors, facts={})


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


def _check_sizes(paths: list[Path], images: list[np.ndarray]) -> None:
    expected = images[0].shape[1]
    for path, image in zip(paths, images, strict=True):
        if image.shape[1:] != (expected, expected):
            width, height = image.shape[2], image.shape[1]
            raise OneshotError(
                f"data.size: {path} is {width}x{height}, but images must be square and of one size: "
                f"set data.size, for instance data.size={expected}, to resize them all"
            )
