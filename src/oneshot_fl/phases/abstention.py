"""How right the server is where it may keep silent, by two scores of how sure it can be.

`server` is its own calibrated confidence, which it has wherever it is used. `clients` is the mean probability that the
clients give the class which the server names, those that have an output for it: it falls where every such client is
unsure, but only a server that holds the uploads can ask for it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oneshot_fl.phases.class_figures import log_odds, rounded

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Of the test images that are answered."""


@dataclass(frozen=True)
class Coverage:
    """Accuracy on the surest test images; fractions."""

    coverage: float
    server: float
    """Where the server says how sure it is."""
    clients: float | None
    """Where the clients do; None: none of them uploaded a classifier, or one answers with what is no number."""


def coverages(logits: Tensor, y: Tensor, support: Tensor | None) -> list[Coverage]:
    """A row for each of `SHARES`.

    Args:
        logits: the server's, calibrated, `[n, c]`.
        y: labels `[n]`.
        support: of `clients_support`, `[n]`.
    """
    confidence, right = log_odds(logits).amax(dim=1), logits.argmax(dim=1) == y
    return [
        Coverage(share, surest(confidence, right, share), None if support is None else surest(support, right, share))
        for share in SHARES
    ]


def surest(score: Tensor, right: Tensor, share: float) -> float:
    """The accuracy on that share of the images with the highest score `[n]`, at least one.

    Of images with the same score as many count as there is room for, all alike: test sets come sorted by class, so
    whoever comes first would be no fair choice.
    """
    kept = max(1, round(share * len(score)))
    last = score.sort(descending=True).values[kept - 1]
    above, level = score > last, score == last
    room = kept - int(above.sum())
    return rounded((int(right[above].sum()) + room * float(right[level].double().mean())) / kept)


def clients_support(P: Tensor, server: Tensor, known: Tensor | None = None) -> Tensor:
    """The clients' mean probability of the server's class, `[b]`; 0 where no client has an output for it.

    Args:
        P: the clients' logits, `[m, b, c]`.
        server: its logits, `[b, c]`.
        known: which classes each client has an output for, bool `[m, c]`; None: all have all.
    """
    named = server.argmax(dim=1)
    given = P.softmax(dim=2).gather(2, named.view(1, -1, 1).expand(len(P), -1, 1)).squeeze(2)
    asked = torch.ones_like(given) if known is None else known.to(given)[:, named]
    return (asked * given).sum(dim=0) / asked.sum(dim=0).clamp_min(1)
