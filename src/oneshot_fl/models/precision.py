"""Where mixed precision ends."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

PRODUCTS = (nn.Linear, _ConvNd)
SINGLE = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.PReLU)
"""Layers whose weights stay in single precision, and which take images of no other."""


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in single precision at least: models may run in bf16, but their logits are compared and averaged in this."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """What autocast lets products compute in here; None outside of it."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def cast_products(module: nn.Module, parameters: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """A module's parameters with those of convolutions and linear layers in `dtype`, for `like_autocast`."""
    products = [name for name, inner in module.named_modules() if isinstance(inner, PRODUCTS)]
    return {
        name: tensor.to(dtype) if name.rpartition(".")[0] in products else tensor for name, tensor in parameters.items()
    }


@contextmanager
def like_autocast(module: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Inside the block, products of the module compute in `dtype`, other layers with weights in single precision.

    For calls through `vmap`, which autocast does not reach: products would be computed in single precision, or refuse
    images that autocast has made. None changes nothing.
    """
    hooks = []
    for inner in module.modules() if dtype is not None else ():
        wanted = dtype if isinstance(inner, PRODUCTS) else torch.float32 if isinstance(inner, SINGLE) else None
        if wanted is not None:
            hooks.append(inner.register_forward_pre_hook(partial(_cast, wanted), prepend=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _cast(dtype: torch.dtype, _: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (given[0].to(dtype), *given[1:])
