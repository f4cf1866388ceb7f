"""How m clients speak with one voice: `ensemble(votes)` -> logits `[b, c]`.

Sums are written as products and sums and not as `einsum`, which mixed precision would compute in bf16.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.batch_norm import logits_by_the_batch
from oneshot_fl.models.per_architecture import mean_probability
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.uploads import Server, known_classes
from oneshot_fl.parts.view import EnsembleFunction, Votes, answered, taught
from oneshot_fl.recipe import made_of_ours, needs_of
from oneshot_fl.values import NotNegative

LOGITS_AT_ONCE = 2**24
"""Of all labels that are weighed in one product: 64 MB."""


class Fixed(nn.Module):
    """An ensemble that never changes: the pool keeps its logits, and there is nothing to refit."""

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers"})

    def __init__(self, server: Server) -> None:
        super().__init__()

    def remember(self, votes: Votes) -> Tensor:
        """What the pool keeps of the votes on a batch: the ensemble's logits `[b, c]`."""
        return taught(self, votes)

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


class Heard(nn.Module):
    """What a sum of the clients' logits hears of each: as they are, where every client has an output for every class.

    What stands for a class that a client has no output for (`models.aligned`) is a small probability. In a sum of
    logits that would be a vote, against a class where others are unsure and for it where they are sure.

    Args:
        server: with the clients' classifiers.
    """

    own: Tensor
    """Which classes a client's model has an output for, bool `[m, c]`."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        own = known_classes(server.uploads.classifiers, server.spec.classes)
        self.complete = bool(own.all())
        self.register_buffer("own", own, persistent=False)

    def forward(self, P: Tensor) -> Tensor:
        """Logits `[m, b, c]` -> the same, where nobody votes on a class without an output for it."""
        return P if self.complete else told_by_others(P, self.own)


def told_by_others(P: Tensor, own: Tensor) -> Tensor:
    """Log-probabilities `[m, b, c]`, of classes that a client has no output for the mean of those who have one.

    So it has no say of its own there, whatever it weighs. What stands for a class that nobody has stays.

    Args:
        P: the clients' logits, `[m, b, c]`.
        own: which classes a client's model has an output for, bool `[m, c]`.
    """
    logs, known = P.log_softmax(dim=2), own.unsqueeze(1)
    others = (logs * known).sum(dim=0) / known.sum(dim=0).clamp_min(1)
    return logs.where(known | ~known.any(dim=0), others)


class LogitAverage(Fixed):
    """The plain mean of the clients' logits (DENSE; FedHydra's AE; Co-Boosting's FedENS)."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.heard = Heard(server)

    def forward(self, votes: Votes) -> Tensor:
        """The label is not used."""
        return self.heard(votes.P).mean(dim=0)


class SizeWeighted(Fixed):
    """Logits weighted by the clients' numbers of samples."""

    weights: Tensor

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.heard = Heard(server)
        sizes = torch.tensor(server.uploads.sizes, dtype=torch.float32)
        self.register_buffer("weights", sizes / sizes.sum())

    def forward(self, votes: Votes) -> Tensor:
        """The label is not used."""
        return (self.weights.view(-1, 1, 1) * self.heard(votes.P)).sum(dim=0)


class LabelShareWeighted(Fixed):
    """Logits weighted, label by label, by which share of that label's samples a client has (DFDG).

    A label that nobody has weighs all clients alike.

    Args:
        server: with the clients' label counts.
        bn: whether clients normalise as they were trained (`eval`) or by the `batch` at hand.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "label_counts", "labels"})
    shares: Tensor

    def __init__(self, server: Server, *, bn: Literal["eval", "batch"]) -> None:
        super().__init__(server)
        counts = server.uploads.told_label_counts
        counts = torch.where(counts.sum(dim=0) > 0, counts, 1).float()
        self.register_buffer("shares", counts / counts.sum(dim=0))
        self.heard = Heard(server)
        self.by_the_batch = bn == "batch"
        self.clients: list[nn.Module] = server.uploads.models  # a list: they belong to the bank, not to its state

    def forward(self, votes: Votes) -> Tensor:
        """Weighted by the label that an image was made for."""
        return (self.shares[:, votes.y].unsqueeze(2) * self._said(votes)).sum(dim=0)

    def label_scores(self, votes: Votes) -> Tensor:
        """As `label_free` would have them, with the clients asked once."""
        return label_scores(self.shares.T, self._said(votes), lambda logits: logits)

    def _said(self, votes: Votes) -> Tensor:
        return self.heard(logits_by_the_batch(self.clients, votes.x) if self.by_the_batch else votes.P)


class ProbabilityAverage(Fixed):
    """The logarithm of the mean of the clients' softmax probabilities."""

    def forward(self, votes: Votes) -> Tensor:
        """The label is not used."""
        return mean_probability(votes.P)


class EntropyWeighted(Fixed):
    """The clients' probabilities, weighted an image by confidence: w_k(x) ~ exp(-sharpness H(p_k(x))).

    No client can shout the others down: whatever it uploads, it is one weight below 1 of probabilities (FedChorus,
    Eq. 9'). With sharpness 0 it is the plain average of probabilities.
    """

    def __init__(self, server: Server, *, sharpness: NotNegative) -> None:
        super().__init__(server)
        self.sharpness = sharpness

    def forward(self, votes: Votes) -> Tensor:
        """Log-probabilities `[b, c]`; the label is not used."""
        return weighted_probability(votes.P, -self.sharpness * entropy(votes.P))


def entropy(P: Tensor) -> Tensor:
    """Of the probabilities that logits `[..., c]` stand for, in nats, `[...]`."""
    logs = P.log_softmax(dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)


def weighted_probability(P: Tensor, score: Tensor) -> Tensor:
    """Logarithm of sum_k softmax_k(score) softmax(P_k): logits `[m, b, c]`, scores `[m, b]` -> `[b, c]`."""
    return (P.log_softmax(dim=2) + score.log_softmax(dim=0).unsqueeze(2)).logsumexp(dim=0)


def needs_several(ensemble: EnsembleFunction) -> bool:
    """Whether it normalises by the batch at hand, of which one image may be too few."""
    return getattr(ensemble, "by_the_batch", False)


def label_free(ensemble: EnsembleFunction, votes: Votes, key: str = "method.ensemble") -> Tensor:
    """Scores `[b, c]` where no label is known (test images): class j's log-probability under the hypothesis y = j.

    The papers do not say how an ensemble that depends on the label is tested; this is our reading: the label that
    agrees best with itself. Probabilities are compared, not logits, because stratified aggregation scales the logits of
    each hypothesis differently. An ensemble that does not need `labels` is asked once and keeps its own ranking; one
    that has `label_scores(votes)` is asked once for all of them.

    Args:
        key: of the ensemble in the configuration, as errors name it.

    Raises:
        OneshotError: the ensemble writes into the votes, or looks at a label that it does not declare.
    """

    def scores(label: int) -> Tensor:
        of_label: Tensor = answered(ensemble, votes._replace(y=torch.full_like(votes.y, label)), key)
        return of_label.log_softmax(1)

    if "labels" not in needs_of(ensemble):
        free = scores(0)
        if not made_of_ours(ensemble) and torch.equal(free, scores(0)) and not torch.equal(free, scores(1)):
            raise OneshotError(f"{key}: answers by votes.y and does not say so; add `labels` to the ensemble's `needs`")
        return free
    if at_once := getattr(ensemble, "label_scores", None):
        found: Tensor = at_once(votes)
        return found
    return torch.stack([scores(j)[:, j] for j in range(votes.P.shape[2])], dim=1)


def label_scores(rows: Tensor, heard: Tensor, spoken: Callable[[Tensor], Tensor]) -> Tensor:
    """What `label_free` asks of an ensemble that weighs clients by the label, `[b, c]`: one product for many labels.

    Args:
        rows: a label's weights of the clients, `[c, m]`.
        heard: what is weighed, `[m, b, c]`.
        spoken: the ensemble's logits of what weighing has left, both `[l, b, c]`.
    """
    clients, images, classes = heard.shape
    flat = at_least_float32(heard).reshape(clients, -1)
    scores = []
    for labels in torch.arange(classes, device=heard.device).split(max(1, LOGITS_AT_ONCE // flat.shape[1])):
        with torch.autocast(heard.device.type, enabled=False):
            mixed = (rows[labels].to(flat) @ flat).view(len(labels), images, classes)
        logs = spoken(mixed).log_softmax(dim=2)
        scores.append(logs.gather(2, labels.view(-1, 1, 1).expand(-1, images, 1)).squeeze(2))
    return torch.cat(scores).T
