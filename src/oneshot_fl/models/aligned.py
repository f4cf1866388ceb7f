"""Models of clients that name other classes, or normalise images otherwise, than the federation does."""

import math

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.precision import at_least_float32

UNKNOWN, ALL_UNKNOWN = 1e-4, 1e-2
"""Probability, beside those of a client's own classes, that it gives to a class that it has no output for; to all such
classes together, so that an upload that names very many classes does not make the others doubt everything.

About what a client says of a class that it has an output for and never saw. Not minus infinity: a weighted sum of
logits or a generator's loss would not be finite. Where logits are summed it is no vote all the same
(`parts.ensembles.Heard`), and stratification does not ask for the class.
"""


class AlignedClassifier(nn.Module):
    """A client's classifier behind the federation's images and classes.

    Args:
        model: images as the client normalises them -> logits of its own classes.
        own: what the client's model takes; channels and size are the federation's.
        spec: what the federation's models take.
        positions: for each of the federation's classes its place among the client's own; None: it has none.
    """

    scale: Tensor
    shift: Tensor
    positions: Tensor
    least: Tensor

    def __init__(self, model: nn.Module, own: DataSpec, spec: DataSpec, positions: list[int | None]) -> None:
        super().__init__()
        self.model = model
        mean, std, own_mean, own_std = (
            torch.tensor(each, dtype=torch.float32).view(1, -1, 1, 1)
            for each in (spec.mean, spec.std, own.mean, own.std)
        )
        self.register_buffer("scale", std / own_std)
        self.register_buffer("shift", (mean - own_mean) / own_std)
        self.register_buffer("positions", torch.tensor([own.classes if each is None else each for each in positions]))
        least = min(UNKNOWN, ALL_UNKNOWN / max(1, positions.count(None)))
        self.register_buffer("least", torch.tensor(math.log(least)))

    def forward(self, x: Tensor) -> Tensor:
        """Images `[b, C, H, W]` in the federation's space -> logits `[b, c]` of its classes."""
        logits = at_least_float32(self.model(x * self.scale + self.shift))
        unknown = logits.logsumexp(dim=1, keepdim=True) + self.least
        return torch.cat([logits, unknown], dim=1)[:, self.positions]


class AlignedDecoder(nn.Module):
    """A client's decoder asked for the federation's classes; of one that it never had it draws its first.

    Nobody asks for those: its label counts say that it has none, its upload (`unknown`) that it cannot draw any.
    """

    positions: Tensor

    def __init__(self, model: nn.Module, positions: list[int | None]) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("positions", torch.tensor([each or 0 for each in positions]))

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """`z` `[n, latent]`, the federation's labels `y` `[n]` -> images `[n, C, H, W]` in [0, 1]."""
        return self.model(z, self.positions[y])


def own_model(model: nn.Module) -> nn.Module:
    """A client's model without what aligns it with the federation."""
    return model.model if isinstance(model, AlignedClassifier | AlignedDecoder) else model
