"""The memory layout of a model: `[b, H, W, C]` is faster (docs/results/speed.md), and not every model can run in it."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec

KEEPS = "keeps_its_layout"
"""The attribute of a model that stays contiguous."""


def as_it_runs(model: nn.Module, spec: DataSpec) -> nn.Module:
    """The same classifier, kept contiguous where it fails in the other layout, as `x.view(len(x), -1)` does."""
    if not _runs_channels_last(model, spec):
        keep_contiguous(model)
    return model


def keep_contiguous(model: nn.Module) -> None:
    """Have a model stay in the layout `[b, C, H, W]`, whatever is asked of all and however its images lie."""
    setattr(model, KEEPS, True)
    model.register_forward_pre_hook(_contiguous)


def to_channels_last(module: nn.Module) -> None:
    """Put the weights of convolutions in the layout `[b, H, W, C]`, those of models that cannot run so excepted.

    `to` and not `contiguous`, which leaves a weight for one input channel as it is: it fits both layouts, but its
    outputs would then follow the other one. Stacked weights, which have five dimensions, stay.
    """
    for tensor in _free(module):
        if tensor.ndim == 4:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)


def _runs_channels_last(model: nn.Module, spec: DataSpec) -> bool:
    images = torch.zeros(2, spec.channels, spec.size, spec.size).to(memory_format=torch.channels_last)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            trial = deepcopy(model).eval()
            to_channels_last(trial)
            trial(images)
        except Exception:  # what else is wrong with it shows in the layout that it knows
            return False
    return True


def _free(module: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers but for those of models that keep their layout."""
    if getattr(module, KEEPS, False):
        return
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)
    for child in module.children():
        yield from _free(child)


def _contiguous(_model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.contiguous() if isinstance(each, Tensor) else each for each in inputs)
