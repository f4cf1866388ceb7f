"""A server model for every architecture among the clients; together they vote."""

import math

import torch
from torch import Tensor, nn

from oneshot_fl.models.precision import at_least_float32


class PerArchitecture(nn.Module):
    """Classifiers of different architectures whose mean probability is the answer (FedMHO, Sec. 5.1.2: "voting").

    Args:
        members: one classifier per architecture.
    """

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Images `[b, C, H, W]` -> logarithm of the mean probabilities, `[b, c]`."""
        return mean_probability(torch.stack([at_least_float32(member(x)) for member in self.members]))


def mean_probability(logits: Tensor) -> Tensor:
    """Logits of m models `[m, b, c]` -> logarithm of the mean of their probabilities, `[b, c]`."""
    return logits.log_softmax(dim=2).logsumexp(dim=0) - math.log(len(logits))


def together(members: list[nn.Module]) -> nn.Module:
    """One model as it is, several as `PerArchitecture`."""
    return members[0] if len(members) == 1 else PerArchitecture(members)


def members_of(model: nn.Module) -> list[nn.Module]:
    """The models that vote, or the only one."""
    return list(model.members) if isinstance(model, PerArchitecture) else [model]
