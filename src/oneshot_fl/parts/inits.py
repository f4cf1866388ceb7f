"""How the student begins."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.parts.uploads import Uploads


class Fresh:
    """The student as it was built: random weights, which depend on seed and architecture only.

    With the clients' architecture and seed (`distill.seed` = `clients.seed`, the default) they are therefore the very
    weights that the clients began at; another `distill.seed` gives others.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, student: nn.Module, uploads: Uploads) -> nn.Module:
        """The student itself."""
        return student


class Average:
    """The clients' weights and buffers averaged by numbers of samples (McMahan et al. 2017, Alg. 1)."""

    needs: ClassVar[frozenset[str]] = frozenset({"same_architecture"})

    def __call__(self, student: nn.Module, uploads: Uploads) -> nn.Module:
        """The student with the average loaded; all models must have the student's tensor names and shapes."""
        student.load_state_dict(mean_state([model.state_dict() for model in uploads.models], uploads.sizes))
        return student


def mean_state(states: list[dict[str, Tensor]], sizes: list[int]) -> dict[str, Tensor]:
    """State dicts of one architecture averaged by numbers of samples.

    Integer buffers (a count of batches) are the first one's: no layer computes with them.
    """
    weights = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    return {name: _mean([state[name] for state in states], weights) for name in states[0]}


def _mean(tensors: list[Tensor], weights: Tensor) -> Tensor:
    if not tensors[0].is_floating_point():
        return tensors[0]
    stacked = torch.stack(tensors).double()
    return torch.einsum("m,m...->...", weights.to(stacked.device), stacked).to(tensors[0].dtype)
