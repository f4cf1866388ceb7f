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
    "tiny_imagenet": (3, None, 200),
}
"""Channels, side and classes of the data sets that always have the same, by the name of their function."""
Shape = tuple[int | None, int | None, int | None]
GUESSED = (3, 32, 10)
"""What a model is tried with where they are not known: what does not fit that may fit the images."""


def shape_of(data: Mapping[str, Any]) -> Shape:
    """Channels, side in pixels and classes of a data set's images; None of what only its files or its code know."""
    channels, side, classes = SHAPES.get(str(data["_target_"]).rpartition(".")[2], (None, None, None))
    return channels or _number(data, "channels"), side or _number(data, "size"), classes


def _number(data: Mapping[str, Any], key: str) -> int | None:
    value = data.get(key)
    return value if type(value) is int else None


def check_sizes(
    settings: Mapping[str, Any], classifiers: Iterable[DictConfig], autoencoders: Iterable[DictConfig] = ()
) -> None:
    """Whether the generator, the architectures of clients and server, and a batch of images can be made.

    Raises:
        OneshotError: naming the key of what cannot, or of what is larger than this machine's memory; or what is to
            train as a conditional VAE is none.
    """
    from oneshot_fl.models.trial import check_memory, require_autoencoder  # torch: not before it is needed

    shape = channels, side, _ = shape_of(settings["data"])
    for node in _different(classifiers):
        _try_model(json.dumps(plain(node)), shape)
    for node in _different(autoencoders):
        if (model := _try_model(json.dumps(plain(node)), shape, classifies=False)) is not None:
            require_autoencoder(model, f"cvae={node.name}")
    generator = {key: value for key, value in settings["generator"].items() if key != "compiled"}
    _try_model(json.dumps(generator), shape)
    image = (channels or 1) * (side or 8) ** 2
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
    return _has_features(json.dumps(plain(node)), shape_of(data))


@cache  # every client of a job is asked about
def _has_features(text: str, shape: Shape) -> bool:
    from oneshot_fl.models.bank import linear_layers
    from oneshot_fl.models.trial import runs_a_linear_layer

    model = _try_model(text, shape)
    if model is None:
        return True
    return bool(linear_layers(model)) if None in shape else runs_a_linear_layer(model, _spec(shape))


@cache  # a sweep checks every job
def _try_model(text: str, shape: Shape, *, classifies: bool = True) -> Any:
    """A model without numbers, or None where nothing is known (`models.trial.try_model`)."""
    from oneshot_fl.models.trial import try_model

    node, known = json.loads(text), None not in shape

    def made(spec: Any) -> Any:
        return build(node, spec=spec)

    return try_model(node["name"], made, _spec(shape), answers=classifies and known, certain=known)


def _spec(shape: Shape) -> Any:
    from oneshot_fl.data.dataset import DataSpec

    channels, side, classes = (value or guess for value, guess in zip(shape, GUESSED, strict=True))
    return DataSpec(channels, side, classes, mean=(0.5,) * channels, std=(0.5,) * channels)
