"""Where mixed precision ends."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in single precision at least: models may run in bf16, but their logits are compared and averaged in this."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
