"""Frozen models whose batch normalisation looks at other statistics than those of their training."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn

from oneshot_fl.models.bank import norm_layers
from oneshot_fl.models.precision import at_least_float32


@contextmanager
def by_the_batch(models: Iterable[nn.Module]) -> Iterator[None]:
    """Inside the block models normalise by the batch at hand; their running statistics are neither read nor written."""
    layers = [layer for model in models for layer in norm_layers(model)]
    before = [(layer.training, layer.track_running_stats) for layer in layers]
    for layer in layers:
        layer.training, layer.track_running_stats = True, False
    try:
        yield
    finally:
        for layer, (training, tracking) in zip(layers, before, strict=True):
            layer.training, layer.track_running_stats = training, tracking


def logits_by_the_batch(models: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Answers `[m, b, c]` to images `x` `[b, C, H, W]`, normalised by those images."""
    with by_the_batch(models):
        return logits_of(models, x)


def logits_of(models: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Answers `[m, b, c]` of models as they are."""
    return at_least_float32(torch.stack([model(x) for model in models]))


@torch.no_grad()
def adapted(models: Sequence[nn.Module], batches: Iterable[Tensor], *, momentum: float) -> list[nn.Module]:
    """Copies of the models, in evaluation mode, whose running statistics have followed the batches in their order.

    Args:
        batches: images `[b, C, H, W]`.
        momentum: the weight of the newest batch.
    """
    copies = [deepcopy(model).eval() for model in models]
    for layer in (layer for copy in copies for layer in norm_layers(copy)):
        layer.training, layer.momentum = True, momentum
    for x in batches:
        for copy in copies:
            copy(x)
    return [copy.eval() for copy in copies]
