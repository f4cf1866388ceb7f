"""What is asked of every trained model before it is stored, and of what a decoder draws."""

import torch
from torch import Tensor, nn

MISSED = 1e-3
"""How far a pixel may lie outside [0, 1]: what a resize leaves of rounding."""
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


def drawn_wrong(images: Tensor) -> str | None:
    """What is wrong with images `[n, C, H, W]` that a decoder has drawn, whose pixels are to be from 0 to 1."""
    low, high = float(images.min()), float(images.max())
    if not bool(torch.isfinite(images).all()):
        return "draws images whose pixels are not finite"
    if low < -MISSED or high > 1 + MISSED:
        return (
            f"draws pixels from {low:.3g} to {high:.3g}, which are to be from 0 to 1; let its decoder end in a sigmoid"
        )
    return None
