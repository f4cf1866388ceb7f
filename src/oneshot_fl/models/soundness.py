"""What is asked of every trained model before it is stored."""

import torch
from torch import nn

TURNED_AWAY = "gate=checks turns such uploads away"
"""The remedy where uploads are not finite."""


def first_unsound(model: nn.Module) -> str:
    """The first tensor that is not finite, or the running variance that is not above 0; empty if there is none."""
    if found := first_not_finite(model):
        return found
    for name, variance in model.named_buffers():
        if name.endswith("running_var") and not bool((variance > 0).all()):
            return name
    return ""


def first_not_finite(model: nn.Module) -> str:
    """The first tensor that is not finite; empty if there is none."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return ""
