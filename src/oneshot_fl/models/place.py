"""Where a model computes."""

from itertools import chain

import torch
from torch import nn


def place_of(model: nn.Module) -> torch.device:
    """The device of a model's first parameter, else of its first buffer; the CPU where it has neither."""
    return next(chain(model.parameters(), model.buffers()), torch.empty(0)).device
