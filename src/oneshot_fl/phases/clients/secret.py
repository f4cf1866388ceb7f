"""Random numbers that nobody can draw again, for the noise of private uploads that leave: the operating system's.

torch's own generator on a CPU begins at one of 2^32 places, however long the seed, which one machine tries in days: the
noise in an upload would tell where it began, and could be taken off again.
"""

import math
import os
from typing import cast

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor


def uniform(count: int) -> Tensor:
    """`[count]` in (0, 1), in double precision, of 52 random bits each."""
    bits = torch.frombuffer(bytearray(os.urandom(8 * count)), dtype=torch.int64)
    return ((bits >> 12).double() + (2**51 + 0.5)) / 2**52  # the upper 52 bits, of which the first is a sign


def normal(shape: torch.Size) -> Tensor:
    """Standard normal numbers of this shape, in double precision."""
    return torch.special.ndtri(uniform(math.prod(shape))).view(shape)


class SecretNoise(DPOptimizer):
    """Opacus's optimiser with noise of the operating system's."""

    def add_noise(self) -> None:
        """Clipped gradients, summed, plus noise of `noise_multiplier * max_grad_norm`, into `grad`."""
        for parameter in self.params:
            total = cast(Tensor, parameter.summed_grad)
            noise = self.noise_multiplier * self.max_grad_norm * normal(total.shape)
            parameter.grad = (total + noise.to(total)).view_as(parameter)
