"""The digits as image files: a data set of folders, and each client's part of it in a folder of its own."""

import os
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from oneshot_fl.data.datasets import digits
from oneshot_fl.data.images import labelled, tree_by_class


def write_digits(root: Path, *, every: int = 1) -> None:
    """`root/{train,test}/<digit>/<number>.png`, every so-manieth image of them."""
    data = digits(mean=[0.5], std=[0.5])
    parts = {"train": (data.train_images, data.train_labels), "test": (data.test_images, data.test_labels)}
    for part, (images, labels) in parts.items():
        for number in range(0, len(labels), every):
            folder = root / part / data.class_names[int(labels[number])]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[number, 0].numpy()).save(folder / f"{number:04d}.png")


def deal(root: Path, indices: Sequence[Tensor], out: Path) -> list[Path]:
    """Each client's training images of `root` in `out/client-<k>/<class>`, the very files."""
    found = tree_by_class(root / "train")
    files = labelled(root / "train", found, list(found))
    folders = [out / f"client-{k}" for k in range(len(indices))]
    for folder, index in zip(folders, indices, strict=True):
        for path, _ in (files[i] for i in index.tolist()):
            (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
            os.link(path, folder / path.parent.name / path.name)
    return folders
