"""Ensembles whose clients are weighed image by image: a gate that looks at pixels, learned on the pool."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.parts.ensembles import Heard
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import Votes


def mixture(P: Tensor, weights: Tensor) -> Tensor:
    """sum_k g_k(x) z_k(x): client logits `[m, b, c]`, weights `[b, m]` -> `[b, c]`."""
    return (weights.t().unsqueeze(2) * P).sum(dim=0)


def products(x: Tensor, matrix: Tensor) -> Tensor:
    """Images `[b, C, H, W]` times one column a client `[C H W, m]` -> `[b, m]`, in full precision whatever runs it."""
    with torch.autocast(x.device.type, enabled=False):
        return x.flatten(1).to(matrix.dtype) @ matrix


class Gated(nn.Module):
    """What gates share: the mixture, what the pool keeps, and one parameter that only `learning` sets free.

    Args:
        server: with the clients' classifiers.
        gate: its weights as they begin.
        expert_grad: whether a gradient reaches the images through the clients too, or through the gate alone.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers"})

    def __init__(self, server: Server, gate: Tensor, *, expert_grad: bool) -> None:
        super().__init__()
        self.heard = Heard(server)
        self.gate, self.expert_grad = nn.Parameter(gate, requires_grad=False), expert_grad

    @abstractmethod
    def weigh(self, x: Tensor) -> Tensor:
        """Every client's weight for every image, `[b, m]`."""

    @abstractmethod
    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """Learn from the pool, once a round."""

    def forward(self, votes: Votes) -> Tensor:
        """The mixture's logits `[b, c]`; the label is not used."""
        return self.mixed(votes.P if self.expert_grad else votes.P.detach(), self.weigh(votes.x))

    def remember(self, votes: Votes) -> Tensor:
        """The pool keeps all clients' logits, `[b, m, c]`, because the gate goes on learning."""
        return votes.P.transpose(0, 1)

    def recall(self, entry: Entry) -> Tensor:
        """The mixture's present logits `[b, c]` from what the pool kept."""
        return self.mixed(entry.answers.transpose(0, 1), self.weigh(entry.x))

    def mixed(self, P: Tensor, weights: Tensor) -> Tensor:
        """The mixture `[b, c]` of what is heard of client logits `[m, b, c]`, with these weights `[b, m]`."""
        return mixture(self.heard(P), weights)

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Inside the block the gate is trained; outside nobody's loss computes gradients for it."""
        self.gate.requires_grad_(True)
        try:
            yield
        finally:
            self.gate.requires_grad_(False)


def pixels(server: Server) -> int:
    """Numbers in one image."""
    return server.spec.channels * server.spec.size**2
