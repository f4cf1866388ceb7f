"""How m clients speak with one voice: `ensemble(votes)` -> logits `[b, c]`.

Sums are written as products and sums and not as `einsum`, which mixed precision would compute in bf16.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.models.per_architecture import mean_probability
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import EnsembleFunction, Votes


class Fixed(nn.Module):
    """An ensemble that never changes: the pool keeps its logits, and there is nothing to refit."""

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers"})

    def __init__(self, server: Server) -> None:
        super().__init__()

    def remember(self, votes: Votes) -> Tensor:
        """What the pool keeps of the votes on a batch: the ensemble's logits `[b, c]`."""
        return self(votes)

    def recall(self, entry: Entry) -> Tensor:
        """The logits again."""
        return entry.answers

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """Nothing to learn."""


class NoTeacher(Fixed):
    """For a student that learns from labels alone: no client is asked, and the pool keeps nothing."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def remember(self, votes: Votes) -> Tensor:
        """`[b, 0]`"""
        return votes.P.new_empty(len(votes.y), 0)


class LogitAverage(Fixed):
    """The plain mean of the clients' logits (DENSE; FedHydra's AE; Co-Boosting's FedENS)."""

    def forward(self, votes: Votes) -> Tensor:
        """The label is not used."""
        return votes.P.mean(dim=0)


class SizeWeighted(Fixed):
    """Logits weighted by the clients' numbers of samples."""

    weights: Tensor

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        sizes = torch.tensor(server.uploads.sizes, dtype=torch.float32)
        self.register_buffer("weights", sizes / sizes.sum())

    def forward(self, votes: Votes) -> Tensor:
        """The label is not used."""
        return (self.weights.view(-1, 1, 1) * votes.P).sum(dim=0)


class ProbabilityAverage(Fixed):
    """The logarithm of the mean of the clients' softmax probabilities."""

    def forward(self, votes: Votes) -> Tensor:
        """The label is not used."""
        return mean_probability(votes.P)


def label_free(ensemble: EnsembleFunction, votes: Votes) -> Tensor:
    """Scores `[b, c]` where no label is known (test images): class j's log-probability under the hypothesis y = j.

    The papers do not say how an ensemble that depends on the label is tested; this is our reading: the label that
    agrees best with itself. Probabilities are compared, not logits, because stratified aggregation scales the logits of
    each hypothesis differently. An ensemble that ignores the label keeps its own ranking.
    """
    scores = [
        ensemble(votes._replace(y=torch.full_like(votes.y, j))).log_softmax(1)[:, j] for j in range(votes.P.shape[2])
    ]
    return torch.stack(scores, dim=1)
