"""FedChorus card (in the making)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from oneshot_fl.parts.ensembles import Fixed, entropy, weighted_probability
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import View, Votes
from oneshot_fl.values import NotNegative


@dataclass(frozen=True)
class Roughness:
    """Mean absolute difference between neighbouring pixels, rows and columns alike (Eq. 4)."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, view: View) -> Tensor:
        """One number per batch, in the space that models see."""
        rows, columns = view.x.diff(dim=2).abs().mean(), view.x.diff(dim=3).abs().mean()
        return torch.stack([rows, columns]).sum()


class EvidenceWeighted(Fixed):
    """The clients' probabilities, weighted an image by how much each client's features speak for its answer (Eqs. 7-9).

    A client that knows an image finds features that point along the weights of its best class; one that does not may
    be as sure of itself, but its evidence is short for so long a feature vector. Clients' evidence is made comparable
    by its mean and deviation over the pool.

    Args:
        server: with the clients' classifiers.
        sharpness: of the weights.
        power: of the length of the features that the evidence is divided by.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "features"})
    mean: Tensor
    deviation: Tensor

    def __init__(self, server: Server, *, sharpness: NotNegative, power: NotNegative, doubt: NotNegative) -> None:
        super().__init__(server)
        self.sharpness, self.power, self.doubt = sharpness, power, doubt
        clients = len(server.uploads.models)
        self.register_buffer("mean", torch.zeros(clients))
        self.register_buffer("deviation", torch.ones(clients))

    def forward(self, votes: Votes) -> Tensor:
        """Log-probabilities `[b, c]`; the label is not used."""
        return self._weigh(votes.P, evidence(votes, self.power))

    def remember(self, votes: Votes) -> Tensor:
        """The pool keeps all clients' logits and evidence, `[b, m, c + 1]`: what is usual is known once it is full."""
        return torch.cat([votes.P, evidence(votes, self.power).unsqueeze(2)], dim=2).transpose(0, 1)

    def recall(self, entry: Entry) -> Tensor:
        """The same log-probabilities from what the pool kept."""
        kept = entry.answers.transpose(0, 1)
        return self._weigh(kept[..., :-1], kept[..., -1])

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """What is usual for each client: mean and deviation of its evidence over the pool."""
        kept = torch.cat([entry.answers for entry in pool.entries])[..., -1]
        self.mean.copy_(kept.mean(dim=0))
        self.deviation.copy_(kept.std(dim=0).clamp_min(torch.finfo(kept.dtype).eps))

    def _weigh(self, P: Tensor, found: Tensor) -> Tensor:
        usual = (found - self.mean.unsqueeze(1)) / self.deviation.unsqueeze(1)
        return weighted_probability(P, self.sharpness * usual - self.doubt * entropy(P))


def evidence(votes: Votes, power: float) -> Tensor:
    """e_k(x) = (max_j z_kj - mean_j z_kj) / |phi_k|^power, `[m, b]` (Eq. 7)."""
    lengths = torch.stack([torch.linalg.vector_norm(features.float(), dim=1) for features in votes.features])
    gap = votes.P.amax(dim=2) - votes.P.mean(dim=2)
    return gap / lengths.clamp_min(torch.finfo(gap.dtype).eps) ** power
