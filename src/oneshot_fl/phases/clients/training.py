"""How one client trains, and what it sends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from oneshot_fl.recipe import Recipe
from oneshot_fl.values import BatchSize, Count, CountOrZero, Positive, Radius, Seed, Share


@dataclass(frozen=True)
class Training:
    """The settings of local training; every field is part of the client's key."""

    epochs: CountOrZero
    batch_size: BatchSize
    optimizer: Recipe[torch.optim.Optimizer]
    seed: Seed
    initial_weights: Literal["shared", "own"] = "shared"
    """Whether clients of one architecture begin alike, as FedAvg asks, or each at weights of its own."""
    augmentation: Literal["none", "flip", "crop", "crop_flip"] = "none"
    sam: Radius | None = None
    """Radius rho of sharpness-aware minimisation; None for none."""
    epsilon: Positive | None = None
    """What differentially private training may spend in all, with `delta` and `clip`; None: it is not private."""
    delta: Share | None = None
    """How likely the guarantee may fail; below one over the client's samples."""
    clip: Positive | None = None
    """The longest gradient that one sample may have."""
    randomness: Literal["seeded", "system"] = "seeded"
    """Where private training draws noise and samples: from `seed`, or from the system, which nobody can do again."""
    communication_rounds: Count = 1
    """How often private training is repeated within `epsilon`; otherwise 1, as nothing then depends on it."""


@dataclass(frozen=True)
class Sent:
    """What is known of an upload besides its model."""

    key: str
    samples: int
    facts: Mapping[str, Any]
    """What the client sends beside the model."""
    label_counts: Tensor | None
    """`[c]`, where the server asked for them."""
    build: Callable[[], Any]
    """A whole model of the same architecture with new weights."""
