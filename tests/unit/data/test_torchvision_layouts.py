"""Files in torchvision's own layouts, made here, are read as the data sets that they stand for."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from oneshot_fl.data import datasets
from oneshot_fl.errors import OneshotError

OPTIONS = {"download": False, "mean": [0.5], "std": [0.5]}


def _write_idx(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(header + values.astype(np.uint8).tobytes())


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx_files(tmp_path, name):
    folder = tmp_path / {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}[name] / "raw"
    images = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256
    for split in ("train", "t10k"):
        _write_idx(folder / f"{split}-images-idx3-ubyte", images)
        _write_idx(folder / f"{split}-labels-idx1-ubyte", np.array([3, 1, 2]))
    data = getattr(datasets, name)(root=str(tmp_path), **OPTIONS)
    assert data.train_images.shape == (3, 1, 28, 28)
    assert torch.equal(data.test_images[1, 0], torch.from_numpy(images[1]).to(torch.uint8))
    assert data.train_labels.tolist() == [3, 1, 2]
    assert data.spec.classes == 10


@pytest.mark.parametrize(
    ("count", "side", "labels", "says"),
    [
        (2, 28, [3, 1, 2], "train_labels: must be one for each of 2 train_images, not 3"),
        (3, 28, [3, 1, 25], "train_labels: must be from 0 to 9, as there are 10 class_names, not from 1 to 25"),
        (3, 20, [3, 1, 2], r"train_images: must have the shape \[n, 1, 28, 28\], not \[3, 1, 28, 20\]"),
    ],
)
def test_idx_files_that_do_not_fit_each_other_are_refused(tmp_path, count, side, labels, says):
    for split in ("train", "t10k"):
        _write_idx(tmp_path / f"MNIST/raw/{split}-images-idx3-ubyte", np.zeros((count, 28, side)))
        _write_idx(tmp_path / f"MNIST/raw/{split}-labels-idx1-ubyte", np.array(labels))
    with pytest.raises(OneshotError, match=rf"^data\.root: {tmp_path}/MNIST/raw/.*: {says}"):
        datasets.mnist(root=str(tmp_path), **OPTIONS)


def test_emnist_is_turned_upright(tmp_path):
    folder = tmp_path / "EMNIST" / "raw"
    images = np.random.default_rng(0).integers(256, size=(2, 28, 28))
    for split in ("train", "test"):
        _write_idx(folder / f"emnist-balanced-{split}-images-idx3-ubyte", images)
        _write_idx(folder / f"emnist-balanced-{split}-labels-idx1-ubyte", np.array([46, 0]))
    data = datasets.emnist(root=str(tmp_path), **OPTIONS)
    assert torch.equal(data.train_images[0, 0], torch.from_numpy(images[0].T.copy()).to(torch.uint8))
    assert data.spec.classes == 47


def test_svhn_mat_files(tmp_path):
    from scipy.io import savemat

    images = np.random.default_rng(0).integers(256, size=(32, 32, 3, 4)).astype(np.uint8)
    for split in ("train", "test"):
        savemat(tmp_path / f"{split}_32x32.mat", {"X": images, "y": np.array([[10], [1], [2], [9]])})
    from torchvision.datasets import SVHN

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SVHN, "_check_integrity", lambda self: True)
        data = datasets.svhn(root=str(tmp_path), **OPTIONS)
    assert data.train_labels.tolist() == [0, 1, 2, 9]
    assert torch.equal(data.train_images[2], torch.from_numpy(images[:, :, :, 2].transpose(2, 0, 1).copy()))


@pytest.mark.parametrize(("name", "key", "classes"), [("cifar10", "labels", 10), ("cifar100", "fine_labels", 100)])
def test_cifar_pickles(tmp_path, name, key, classes):
    from torchvision.datasets import CIFAR10, CIFAR100

    kind = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    folder = tmp_path / kind.base_folder
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(256, size=(2, 3072)).astype(np.uint8)
    for file, _ in kind.train_list + kind.test_list:
        (folder / file).write_bytes(pickle.dumps({"data": pixels, key: [1, 5]}))
    names = [f"class {number}" for number in range(classes)]
    (folder / kind.meta["filename"]).write_bytes(pickle.dumps({kind.meta["key"]: names}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "_check_integrity", lambda self: True)
        patch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5: True)
        data = getattr(datasets, name)(root=str(tmp_path), **OPTIONS)
    assert data.train_images.shape[1:] == (3, 32, 32)
    assert torch.equal(data.train_images[0], torch.from_numpy(pixels[0].reshape(3, 32, 32)))
    assert data.class_names[5] == "class 5"


def test_a_damaged_file_ends_in_one_line(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for split in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (folder / f"{split}-{kind}-ubyte").write_bytes(gzip.compress(b"not idx"))
    with pytest.raises(datasets.OneshotError, match=r"data\.root"):
        datasets.mnist(root=str(tmp_path), **OPTIONS)
