"""Whether models and images would fit: architectures are built on torch's `meta` device, which allocates nothing."""

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.compose import build, plain
from oneshot_fl.errors import OneshotError, one_line

SHAPES = {
    "digits": (1, 8, 10),
    "mnist": (1, 28, 10),
    "fashion_mnist": (1, 28, 10),
    "emnist": (1, 28, 47),
    "cifar10": (3, 32, 10),
    "cifar100": (3, 32, 100),
    "svhn": (3, 32, 10),
}
"""Channels, side and classes of the data sets that always have the same, by the name of their function."""


def shape_of(data: Mapping[str, Any]) -> tuple[int, int | None, int]:
    """Channels, side in pixels and classes of a data set's images; None for a side that only the files know."""
    function = str(data["_target_"]).rpartition(".")[2]
    if function in SHAPES:
        return SHAPES[function]
    return data.get("channels", 3), data.get("size"), 10


def check_sizes(settings: Mapping[str, Any], architectures: Iterable[DictConfig]) -> None:
    """Whether the generator, the architectures of clients and server, and a batch of images can be made.

    Raises:
        OneshotError: naming the key of what cannot, or of what is larger than this machine's memory.
    """
    channels, side, classes = shape_of(settings["data"])
    for node in {id(each): each for each in architectures}.values():
        _try_model(json.dumps(plain(node)), channels, side, classes)
    generator = {key: value for key, value in settings["generator"].items() if key != "compiled"}
    _try_model(json.dumps(generator), channels, side, classes)
    image = channels * (side or 8) ** 2
    for key in ("distill.batch_size", "stratify.batch_size"):
        group, name = key.split(".")
        _check_memory(key, settings[group][name], 4 * image * settings[group][name])
    if samples := settings["proxy"].get("samples", 0):
        _check_memory("proxy.samples", samples, image * samples)


def has_features(node: DictConfig, data: Mapping[str, Any]) -> bool:
    """Whether an architecture has a linear layer, as far as it can be built on no images."""
    return _try_model(json.dumps(plain(node)), *shape_of(data))


@cache  # a sweep checks every job
def _try_model(text: str, channels: int, side: int | None, classes: int) -> bool:
    """Whether it has a linear layer; where nothing is known, it is taken to have one."""
    node = json.loads(text)
    import torch

    from oneshot_fl.data.dataset import DataSpec
    from oneshot_fl.models.bank import linear_layers

    size = side or 32
    spec = DataSpec(channels, size, classes, mean=(0.5,) * channels, std=(0.5,) * channels)
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            model = build(node, spec=spec)
            count = sum(parameter.numel() for parameter in model.parameters())
            _check_memory(f"{node['name']}: {count:,} parameters", None, 4 * count)
            answer = model(torch.zeros(2, channels, size, size)) if side and _is_classifier(model) else None
    except OneshotError:
        raise
    except Exception as error:  # whatever an architecture raises is its answer to these settings
        if "meta" in str(error):  # it computes with its weights, which there are not here: nothing is known
            return True
        raise OneshotError(
            f"{node['name']}: cannot be built for {channels}x{size}x{size} images and {classes} classes "
            f"({one_line(error)}); change its settings or choose another architecture"
        ) from error
    if answer is not None and getattr(answer, "shape", None) != (2, classes):
        raise OneshotError(f"{node['name']}: is no classifier, it does not answer with one number per class")
    return bool(linear_layers(model))


def _is_classifier(model: Any) -> bool:
    """Not a generator, which has noise of its own, nor a VAE, which has a latent space."""
    return not hasattr(model, "sample_noise") and not hasattr(model, "latent")


def _check_memory(key: str, value: Any, needed: int) -> None:
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        given = key if value is None else f"{key}={value}"
        raise OneshotError(
            f"{given}: would need {math.ceil(needed / 1e9):,} GB at the least, and this machine has "
            f"{there // 10**9:,} GB of memory; lower it"
        )
