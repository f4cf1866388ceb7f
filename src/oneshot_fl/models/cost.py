"""What a forward pass costs, counted without running it."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

aten = torch.ops.aten


def multiply_accumulates(model: nn.Module, *inputs: Tensor) -> int:
    """Multiplications that a forward pass in evaluation mode adds up: convolutions, also transposed, and linear layers.

    Inputs of one sample give the cost of a sample. Nothing is computed and the model is left as it is, wherever it is.
    """
    return _count(model, inputs, {})


def table2_operations(model: nn.Module, *inputs: Tensor) -> int:
    """The same as FedMHO prints them (Table 2, "FLOPs"), for its models.

    Its numbers come out if a transposed convolution costs as though every kernel element met a pixel for every *output*
    (four times too much at stride 2), adaptive pooling a sum and a division an output, and bilinear upsampling 11
    operations an output.
    """
    return _count(model, inputs, TABLE2)


def _count(model: nn.Module, inputs: tuple[Tensor, ...], rules: dict[Any, Callable[..., int]]) -> int:
    """Half the floating-point operations of a forward pass on tensors without contents."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=rules) as counter:
            functional_call(
                model,
                {name: tensor.to("meta") for name, tensor in tensors.items()},
                tuple(x.to("meta") for x in inputs),
            )
    finally:
        for module, mode in training.items():
            module.training = mode
    return counter.get_total_flops() // 2


def _convolution(x: list[int], weight: list[int], *settings: Any, out_shape: list[int], **_: Any) -> int:
    """Twice the kernel's elements for every pixel that comes out, transposed or not."""
    return 2 * out_shape[0] * prod(out_shape[2:]) * prod(weight)


def _adaptive_pooling(x: list[int], size: list[int], *, out_shape: list[int], **_: Any) -> int:
    window = prod(before // after for before, after in zip(x[2:], out_shape[2:], strict=True))
    return 2 * (window + 1) * prod(out_shape)


def _bilinear(x: list[int], *settings: Any, out_shape: list[int], **_: Any) -> int:
    return 2 * 11 * prod(out_shape)


TABLE2: dict[Any, Callable[..., int]] = {
    aten.convolution: _convolution,
    aten._adaptive_avg_pool2d: _adaptive_pooling,
    aten.upsample_bilinear2d: _bilinear,
}
