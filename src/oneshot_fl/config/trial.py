"""Whether models and images would fit, as far as it is known before the images are there (`models.trial`)."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.compose import build, plain

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


def check_sizes(
    settings: Mapping[str, Any], classifiers: Iterable[DictConfig], autoencoders: Iterable[DictConfig] = ()
) -> None:
    """Whether the generator, the architectures of clients and server, and a batch of images can be made.

    Raises:
        OneshotError: naming the key of what cannot, or of what is larger than this machine's memory; or what is to
            train as a conditional VAE is none.
    """
    from oneshot_fl.models.trial import check_memory, require_autoencoder  # torch: not before it is needed

    channels, side, classes = shape_of(settings["data"])
    for node in _different(classifiers):
        _try_model(json.dumps(plain(node)), channels, side, classes)
    for node in _different(autoencoders):
        if (model := _try_model(json.dumps(plain(node)), channels, side, classes, classifies=False)) is not None:
            require_autoencoder(model, f"cvae={node.name}")
    generator = {key: value for key, value in settings["generator"].items() if key != "compiled"}
    _try_model(json.dumps(generator), channels, side, classes)
    image = channels * (side or 8) ** 2
    for key in ("distill.batch_size", "stratify.batch_size"):
        group, name = key.split(".")
        check_memory(key, settings[group][name], 4 * image * settings[group][name])
    if samples := settings["proxy"].get("samples", 0):
        check_memory("proxy.samples", samples, image * samples)


def _different(nodes: Iterable[DictConfig]) -> list[DictConfig]:
    """Of what most clients share one."""
    return list({id(each): each for each in nodes}.values())


def has_features(node: DictConfig, data: Mapping[str, Any]) -> bool:
    """Whether a classifier runs a linear layer, as far as that is known; where nothing is, it is taken to."""
    return _has_features(json.dumps(plain(node)), *shape_of(data))


@cache  # every client of a job is asked about
def _has_features(text: str, channels: int, side: int | None, classes: int) -> bool:
    from oneshot_fl.models.bank import linear_layers
    from oneshot_fl.models.trial import runs_a_linear_layer

    model = _try_model(text, channels, side, classes)
    if model is None:
        return True
    return bool(linear_layers(model)) if side is None else runs_a_linear_layer(model, _spec(channels, side, classes))


@cache  # a sweep checks every job
def _try_model(text: str, channels: int, side: int | None, classes: int, *, classifies: bool = True) -> Any:
    """A model without numbers, or None where nothing is known (`models.trial.try_model`)."""
    from oneshot_fl.models.trial import try_model

    node, spec = json.loads(text), _spec(channels, side or 32, classes)
    return try_model(node["name"], lambda spec: build(node, spec=spec), spec, answers=classifies and side is not None)


def _spec(channels: int, side: int, classes: int) -> Any:
    from oneshot_fl.data.dataset import DataSpec

    return DataSpec(channels, side, classes, mean=(0.5,) * channels, std=(0.5,) * channels)
