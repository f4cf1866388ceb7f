"""A data set as hostile clients would have it: what they trained on, and everything else changed in the same way.

Whether such a client remembers its samples can only be asked by what it trained on, beside others that look alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from oneshot_fl.data.dataset import Dataset
from oneshot_fl.errors import OneshotError
from oneshot_fl.parts.attacks import Poison
from oneshot_fl.phases.clients.samples import own_samples
from oneshot_fl.phases.clients.train import ClientPlan
from oneshot_fl.recipe import Recipe


@dataclass(frozen=True)
class Poisoned:
    """What an attack on training makes of a data set."""

    data: Dataset
    """Training images of hostile clients as these trained on them; all others as if they belonged to one more."""
    hostile: Tensor
    """Positions of the hostile clients' images in the training set, `[n]`."""


def poisoned(data: Dataset, indices: Sequence[Tensor], plans: Sequence[ClientPlan]) -> Poisoned | None:
    """What hostile clients have made of their images and labels, and would make of all others; None: nobody is hostile.

    Args:
        indices: each client's samples in the training set.

    Raises:
        OneshotError: an attack makes another number of samples, so that nobody knows what became of which.
    """
    theirs = [(index, plan.poison) for index, plan in zip(indices, plans, strict=True) if plan.poison is not None]
    if not theirs:
        return None
    poison = theirs[0][1]  # a run has one attack
    images, labels = _poisoned(poison, data.train_images, data.train_labels, data.spec.classes)
    for index, _ in theirs:
        place = index.to(labels.device)
        own = own_samples(data, index)
        images[place], labels[place] = _poisoned(poison, own.images, own.labels, data.spec.classes)
    of_test = _poisoned(poison, data.test_images, data.test_labels, data.spec.classes)
    changed = replace(data, train_images=images, train_labels=labels, test_images=of_test[0], test_labels=of_test[1])
    return Poisoned(changed, torch.cat([index for index, _ in theirs]))


def _poisoned(poison: Recipe[Poison], images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Tensors of their own, whatever the attack writes into or hands on."""
    made = poison()(images.clone(), labels.clone(), classes)
    if any(len(each) != len(labels) for each in made):
        raise OneshotError(
            f"evaluate=privacy: attack={poison.name} makes {len(made[0])} images and {len(made[1])} labels of "
            f"{len(labels)}, so that no attack can be asked which it was trained on; it must make one of each"
        )
    return made[0], made[1]
