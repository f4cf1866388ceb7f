"""What a forward pass costs."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def multiply_accumulates(
    model: nn.Module, *inputs: Tensor, rules: Mapping[Any, Callable[..., int]] | None = None
) -> int:
    """Multiplications that a forward pass in evaluation mode adds up: convolutions, also transposed, and linear layers.

    Inputs of one sample give the cost of a sample; models and inputs on the meta device compute nothing.

    Args:
        rules: other ways to count some operators, in floating-point operations (`FlopCounterMode.custom_mapping`).
    """
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=dict(rules or {})) as counter:
            model(*inputs)
    finally:
        for module, mode in training.items():
            module.training = mode
    return counter.get_total_flops() // 2
