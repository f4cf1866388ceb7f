"""Membership inference: can the holder of a model tell which images it was trained on?

Two attacks, by one score an image: the loss attack (Yeom et al., 2018) takes the model's confidence in the true label;
LiRA-lite takes it relative to models that never saw the image (the offline attack of Carlini et al., "Membership
Inference Attacks From First Principles", 2022, with one variance for all images, which changes no order).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc, binary_roc

from oneshot_fl.phases.class_figures import in_order, log_odds, rounded

FALSE_ALARMS = 0.01
"""Share of images that were not trained on and are taken for members all the same."""


@dataclass(frozen=True)
class Attack:
    """How well a score tells members from others; fractions, 0.5 and 0.01 by chance."""

    auc: float
    tpr: float
    """Members found with at most `FALSE_ALARMS` among the others."""


def attack(members: Tensor, others: Tensor) -> Attack:
    """Of scores `[n]` and `[k]`, high for members; at least one of each."""
    scores = torch.cat([members, others]).double()
    truth = torch.cat([torch.ones(len(members)), torch.zeros(len(others))]).long()
    shares = in_order(scores)
    false_alarms, found, _ = binary_roc(shares, truth)
    return Attack(
        rounded(float(binary_auroc(shares, truth))), rounded(float(found[false_alarms <= FALSE_ALARMS].max()))
    )


def confidence(logits: Tensor, y: Tensor) -> Tensor:
    """log(p_y / (1 - p_y)) of logits `[n, c]` and labels `[n]`: nearly normal, unlike the loss (Carlini et al.)."""
    return log_odds(logits.cpu()).gather(1, y.cpu()[:, None]).squeeze(1)  # Apple's GPUs have no double precision


def relative(confidences: Tensor, references: Tensor, seen: Tensor) -> Tensor:
    """Confidences `[n]` less the mean of those reference models `[r, n]` that did not train on the image.

    Args:
        seen: which reference model trained on which image, `[r, n]`; each image has one that did not.
    """
    unseen = (~seen).double()
    return confidences - (references * unseen).sum(dim=0) / unseen.sum(dim=0)


def matched(members: Tensor, others: Tensor, most: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Positions in two lists of labels, `[n]` and `[k]`, drawn such that both hold every label equally often.

    Otherwise an attack need only guess which classes a client had.

    Args:
        most: of each, at most.
    """
    nothing = members.new_empty(0, dtype=torch.long)  # all that is drawn where there are no members
    chosen = [(nothing, nothing)]
    for label in members.unique():
        own, foreign = ((labels == label).nonzero().flatten() for labels in (members, others))
        count = min(len(own), len(foreign))
        chosen.append((_drawn(own, count, rng), _drawn(foreign, count, rng)))
    both = torch.stack([torch.cat([pair[side] for pair in chosen]) for side in (0, 1)])
    first, second = both[:, torch.randperm(both.shape[1], generator=rng)[:most]]
    return first, second


def _drawn(positions: Tensor, count: int, rng: torch.Generator) -> Tensor:
    return positions[torch.randperm(len(positions), generator=rng)[:count]]
