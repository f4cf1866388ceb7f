"""How learning rates move: the student's over the rounds of a distillation, and any by a factor."""

import math

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor

from oneshot_fl.parts.slots import Schedule

RISE = 0.3
"""Share of one cycle in which the rate rises."""
STEPS_AT = (0.5, 0.75)
"""Shares of the rounds after which the rate drops."""
LOWEST = 1 / 25
"""Where one cycle begins, as a share of its highest rate; it ends at 0."""


def factor(schedule: Schedule, *, rounds_done: int, within: float, rounds: int) -> float:
    """What the learning rate is multiplied by.

    `cosine`: half a cosine from 1 to 0, one step a round (the reference codes). `steps`: a tenth from half of the
    rounds on, a hundredth from three quarters on (FedISCA). `one_cycle`: half a cosine up, a longer
    one down, moving with every batch (Smith and Topin 2019, without its momentum).

    Args:
        within: the share of the present round that is over.
        rounds: T_g.
    """
    if schedule == "one_cycle":
        return one_cycle((rounds_done + within) / rounds)
    if schedule == "steps":
        return steps(rounds_done / rounds)
    return half_cosine(rounds_done / rounds) if schedule == "cosine" else 1.0


def steps(share: float) -> float:
    """A tenth at each of `STEPS_AT`."""
    return 0.1 ** sum(share >= at for at in STEPS_AT)


def half_cosine(share: float) -> float:
    """From 1 (`share` 0) to 0 (`share` 1)."""
    return (1 + math.cos(math.pi * share)) / 2


def one_cycle(share: float) -> float:
    """From `LOWEST` (`share` 0) up to 1 (`share` `RISE`) and down to 0 (`share` 1)."""
    if share < RISE:
        return 1 - (1 - LOWEST) * half_cosine(share / RISE)
    return half_cosine((share - RISE) / (1 - RISE))


def anneal(optimizer: torch.optim.Optimizer | LightningOptimizer, times: Tensor | float) -> None:
    """The learning rate that the optimiser began with, multiplied; on a device where `times` is."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * times
