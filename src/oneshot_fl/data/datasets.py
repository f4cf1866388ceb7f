"""Built-in data sets: one function a data set, each returns a `Dataset` in memory.

`root` is the folder that torchvision's own data sets take; nothing is fetched unless `download` is true.
"""

from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.data.sound import flaw
from oneshot_fl.errors import OneshotError, one_line
from oneshot_fl.values import PathText, PixelDeviation, PixelMean

UNREADABLE = (RuntimeError, OSError, ValueError, AssertionError, EOFError, KeyError, UnpicklingError)
"""What torchvision raises over files that are missing, cut short or damaged, and over failed downloads."""


def digits(*, mean: PixelMean, std: PixelDeviation) -> Dataset:
    """scikit-learn's 1,797 handwritten 8x8 digits (no download), 20% held out by a fixed stratified split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    raw = load_digits()
    images = torch.from_numpy(np.rint(raw.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, random_state=0, stratify=labels.numpy())
    return make_dataset(
        name="digits",
        train=(images[train], labels[train]),
        test=(images[test], labels[test]),
        class_names=tuple(str(name) for name in raw.target_names),
        mean=mean,
        std=std,
    )


def mnist(*, root: PathText, download: bool, mean: PixelMean, std: PixelDeviation) -> Dataset:
    """MNIST: 60,000 + 10,000 grey 28x28 digits."""
    return _from_torchvision("MNIST", "mnist", "MNIST/raw/{train,t10k}-*-ubyte", root, download, mean, std)


def fashion_mnist(*, root: PathText, download: bool, mean: PixelMean, std: PixelDeviation) -> Dataset:
    """Fashion-MNIST: 60,000 + 10,000 grey 28x28 pictures of clothes."""
    return _from_torchvision(
        "FashionMNIST", "fashion_mnist", "FashionMNIST/raw/{train,t10k}-*-ubyte", root, download, mean, std
    )


def emnist(*, root: PathText, download: bool, mean: PixelMean, std: PixelDeviation) -> Dataset:
    """EMNIST balanced: 112,800 + 18,800 grey 28x28 letters and digits, 47 classes, turned upright."""
    return _from_torchvision(
        "EMNIST",
        "emnist",
        "EMNIST/raw/emnist-balanced-{train,test}-*-ubyte",
        root,
        download,
        mean,
        std,
        split="balanced",
        to_images=lambda images: _to_images(images).transpose(2, 3).contiguous(),
    )


def cifar10(*, root: PathText, download: bool, mean: PixelMean, std: PixelDeviation) -> Dataset:
    """CIFAR-10: 50,000 + 10,000 colour 32x32 pictures."""
    return _from_torchvision("CIFAR10", "cifar10", "cifar-10-batches-py/", root, download, mean, std)


def cifar100(*, root: PathText, download: bool, mean: PixelMean, std: PixelDeviation) -> Dataset:
    """CIFAR-100: 50,000 + 10,000 colour 32x32 pictures."""
    return _from_torchvision("CIFAR100", "cifar100", "cifar-100-python/", root, download, mean, std)


def svhn(*, root: PathText, download: bool, mean: PixelMean, std: PixelDeviation) -> Dataset:
    """SVHN: 73,257 + 26,032 colour 32x32 house numbers (without the `extra` part, as the reference codes)."""
    return _from_torchvision("SVHN", "svhn", "{train,test}_32x32.mat", root, download, mean, std)


def _from_torchvision(
    kind: str,
    name: str,
    files: str,
    root: str,
    download: bool,
    mean: float | list[float],
    std: float | list[float],
    *,
    to_images: Callable[[Any], Tensor] | None = None,
    **extra: str,
) -> Dataset:
    parts = [_open_split(kind, files, root, download, train, extra) for train in (True, False)]
    convert = to_images or _to_images
    train, test = ((convert(part.data), torch.as_tensor(_labels(part))) for part in parts)
    classes = getattr(parts[0], "classes", None) or [str(digit) for digit in range(10)]
    source = f"data.root: {Path(root).absolute()}/{files} do not fit each other or are another data set's"
    data = make_dataset(
        name=name, train=train, test=test, class_names=tuple(classes), mean=mean, std=std, source=source
    )
    if found := flaw(data):
        raise OneshotError(f"{source}: {found}")
    return data


def _open_split(kind: str, files: str, root: str, download: bool, train: bool, extra: dict[str, str]) -> Any:
    from torchvision import datasets

    which = {"split": "train" if train else "test"} if kind == "SVHN" else {"train": train}
    try:
        return getattr(datasets, kind)(root, download=download, **which, **extra)
    except UNREADABLE as error:
        folder = Path(root).absolute()
        raise OneshotError(
            f"data.root: {kind} cannot be read from {folder} ({one_line(error)}); it needs {folder}/{files}: "
            "set data.root to the folder that holds them, or data.download=true to fetch them"
        ) from error


def _labels(part: Any) -> Any:
    return part.labels if hasattr(part, "labels") else part.targets


def _to_images(data: Any) -> Tensor:
    """Any of torchvision's layouts (`[n,H,W]`, `[n,H,W,3]`, `[n,3,H,W]`) to uint8 `[n, C, H, W]`."""
    images = torch.as_tensor(data)
    if images.ndim == 3:
        return images.unsqueeze(1)
    return images if images.shape[1] == 3 else images.permute(0, 3, 1, 2).contiguous()
