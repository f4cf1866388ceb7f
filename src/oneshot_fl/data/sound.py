"""Whether data and their split are what all that follows takes for granted: those of a user's code may be anything.

Each `flaw` gives what is wrong and what would be right, in words that follow a name; None where nothing is. No image is
copied.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneshot_fl.data.class_names import flaw_of_names
from oneshot_fl.data.dataset import Dataset
from oneshot_fl.data.sound_parts import flaw_of_parts, flaw_of_scale, kind_of, shape_of
from oneshot_fl.errors import first_of
from oneshot_fl.fits import problem, shown
from oneshot_fl.values import Channels, Side


def flaw(data: Dataset) -> str | None:
    """Of a whole data set."""
    checks = (_flaw_of_parts, _flaw_of_spec, _flaw_of_sizes, _flaw_of_classes, _flaw_of_domains)
    return next(filter(None, (check(data) for check in checks)), None)


def trained_on(train: Tensor, test: Tensor, key: str) -> tuple[str, ...]:
    """A line on test images that are training images too, pixel by pixel; none where there is no such image.

    Args:
        train: images uint8 `[n, C, H, W]`, as `test`.
        key: of the configuration, where both are from.
    """
    known = {hash(image.tobytes()) for image in train.cpu().numpy()}
    again = sum(hash(image.tobytes()) in known for image in test.cpu().numpy())
    if not again:
        return ()
    return (f"{key}: {again} of {len(test)} test images are training images too: accuracy is too high by them",)


def without_images(data: Dataset, key: str) -> tuple[str, ...]:
    """A line for each part of a data set that has no image of some class; `key` is the configuration's."""
    lines = []
    for part, labels in {"training": data.train_labels, "test": data.test_labels}.items():
        there = set(labels.tolist())
        if missing := [name for label, name in enumerate(data.class_names) if label not in there]:
            lines.append(f"{key}: no {part} image is of class {first_of(missing)}")
    return tuple(lines)


def _flaw_of_parts(data: Dataset) -> str | None:
    return flaw_of_parts(data.train_images, data.train_labels, data.test_images, data.test_labels)


def _flaw_of_spec(data: Dataset) -> str | None:
    """Of what models are built from: only what a model file can tell of."""
    spec = data.spec
    if found := flaw_of_names(data.class_names):
        return found
    if spec.classes != len(data.class_names):
        return f"class_names: must be as many as spec.classes={shown(spec.classes)}, not {len(data.class_names)}"
    for name, value, hint in (("channels", spec.channels, Channels), ("size", spec.size, Side)):
        if wanted := problem(value, hint):
            return f"{name}={shown(value)}: must be {wanted}"
    return flaw_of_scale(spec.mean, spec.std, spec.channels)


def _flaw_of_sizes(data: Dataset) -> str | None:
    """Whether there are images in both parts, all as the spec says."""
    shape = [data.spec.channels, data.spec.size, data.spec.size]
    for part, images in (("train", data.train_images), ("test", data.test_images)):
        if list(images.shape[1:]) != shape:
            wanted = ", ".join(map(str, shape))
            return (
                f"{part}_images: must have the shape [n, {wanted}], not {shape_of(images)}; all images are square "
                "and of one size"
            )
        if not len(images):
            return f"{part}_images: must be at least one image, and there is none"
    return None


def _flaw_of_classes(data: Dataset) -> str | None:
    wanted = f"as there are {data.spec.classes} class_names"
    return _flaw_of_numbers("train_labels", data.train_labels, data.spec.classes, wanted) or _flaw_of_numbers(
        "test_labels", data.test_labels, data.spec.classes, wanted
    )


def _flaw_of_domains(data: Dataset) -> str | None:
    domains = data.train_domains
    if domains is None:
        return None
    if not isinstance(domains, Tensor) or domains.dtype != torch.int64 or domains.shape != data.train_labels.shape:
        return f"train_domains: must be torch.int64, one for each of {len(data.train_labels)} train_images, or None"
    names = len(data.domain_names)
    return _flaw_of_numbers("train_domains", domains, names, f"as there are {names} domain_names")


def _flaw_of_numbers(name: str, numbers: Tensor, count: int, why: str) -> str | None:
    lowest, highest = (int(each) for each in numbers.aminmax())
    if lowest >= 0 and highest < count:
        return None
    return f"{name}: must be from 0 to {count - 1}, {why}, not from {lowest} to {highest}"


def flaw_of_split(indices: Any, *, clients: int, samples: int) -> str | None:
    """Of the samples that a partition gives to clients; that none goes without any is not looked at here."""
    if not isinstance(indices, list | tuple):
        return f"must give a list of index arrays, one a client, not {kind_of(indices)}"
    if len(indices) != clients:
        return f"must give an index array to each of {clients} clients (partition.clients), not {len(indices)} arrays"
    for k, index in enumerate(indices):
        if not isinstance(index, np.ndarray):
            return f"client {k} must get a NumPy array of indices, not {kind_of(index)}"
        if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
            return f"client {k} must get an array [n] of whole numbers, not {index.dtype} {shape_of(index)}"
    return _flaw_of_indices(np.concatenate([index.astype(np.int64) for index in indices]), samples)


def _flaw_of_indices(everything: Any, samples: int) -> str | None:
    """Whether each sample goes to one client."""
    if len(outside := everything[(everything < 0) | (everything >= samples)]):
        return f"indices must be from 0 to {samples - 1}, as there are {samples} training samples, not {outside[0]}"
    counts = np.bincount(everything, minlength=samples)
    for wrong, says in ((counts > 1, "several times"), (counts == 0, "to no client")):
        if len(found := np.flatnonzero(wrong)):
            return (
                f"each of {samples} training samples must go to one client once, but {len(found)} go {says}, for "
                f"instance sample {found[0]}"
            )
    return None
