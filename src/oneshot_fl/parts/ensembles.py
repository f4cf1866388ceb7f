"""How m clients speak with one voice: `ensemble(P, y)`, `[m, b, c]` and `[b]` -> logits `[b, c]`.

Sums are written as products and sums and not as `einsum`, which mixed precision would compute in bf16.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.models.per_architecture import mean_probability
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import EnsembleFunction


class Fixed(nn.Module):
    """An ensemble that never changes: the pool keeps its logits, and there is nothing to refit."""

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers"})

    def __init__(self, server: Server) -> None:
        super().__init__()

    def remember(self, P: Tensor, y: Tensor) -> Tensor:
        """What the pool keeps of the answers to a batch: the ensemble's logits `[b, c]`."""
        return self(P, y)

    def recall(self, answers: Tensor) -> Tensor:
        """The logits again."""
        return answers

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """Nothing to learn."""


class NoTeacher(Fixed):
    """For a student that learns from labels alone: no client is asked, and the pool keeps nothing."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def remember(self, P: Tensor, y: Tensor) -> Tensor:
        """`[b, 0]`"""
        return P.new_empty(len(y), 0)


class LogitAverage(Fixed):
    """The plain mean of the clients' logits (DENSE; FedHydra's AE; Co-Boosting's FedENS)."""

    def forward(self, P: Tensor, y: Tensor) -> Tensor:
        """The label is not used."""
        return P.mean(dim=0)


class SizeWeighted(Fixed):
    """Logits weighted by the clients' numbers of samples."""

    weights: Tensor

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        sizes = torch.tensor(server.uploads.sizes, dtype=torch.float32)
        self.register_buffer("weights", sizes / sizes.sum())

    def forward(self, P: Tensor, y: Tensor) -> Tensor:
        """The label is not used."""
        return (self.weights.view(-1, 1, 1) * P).sum(dim=0)


class ProbabilityAverage(Fixed):
    """The logarithm of the mean of the clients' softmax probabilities."""

    def forward(self, P: Tensor, y: Tensor) -> Tensor:
        """The label is not used."""
        return mean_probability(P)


def label_free(ensemble: EnsembleFunction, P: Tensor) -> Tensor:
    """Scores `[b, c]` where no label is known (test images): class j's log-probability under the hypothesis y = j.

    The papers do not say how an ensemble that depends on the label is tested; this is our reading: the label that
    agrees best with itself. Probabilities are compared, not logits, because stratified aggregation scales the logits of
    each hypothesis differently. An ensemble that ignores the label keeps its own ranking.
    """
    _, batch, classes = P.shape
    scores = [ensemble(P, torch.full((batch,), j, device=P.device)).log_softmax(1)[:, j] for j in range(classes)]
    return torch.stack(scores, dim=1)
