"""What may happen to a pool's images on their way to the student."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

Teacher = Callable[[Tensor], Tensor]
"""Images `[b, C, H, W]` -> the ensemble's logits `[b, c]`."""


class Perturb(Protocol):
    """Images `[b, C, H, W]` -> other images of the same shape, detached; the teacher is asked anew about them."""

    def __call__(self, x: Tensor, teacher: Teacher, rng: torch.Generator) -> Tensor:
        """Draw from `rng` only."""
