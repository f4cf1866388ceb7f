"""Sharpness-aware minimisation (Foret et al. 2021): what two passes per step need besides the optimiser's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from oneshot_fl.models.optimizers import OptimizerFactory


def sharpness_aware(model: nn.Module, optimizer: OptimizerFactory, *, rho: float) -> torch.optim.Optimizer:
    """`optimizer`, stepping with the gradient at `w + rho * g / ||g||` (Eqs. 2 and 3), g the gradient at the weights w.

    Its `step` takes a closure that computes that second gradient.
    """
    from pytorch_optimizer import SAM  # seconds to import

    return SAM(model.parameters(), optimizer, rho=rho)  # type: ignore[arg-type]  # any factory will do


@contextmanager
def running_statistics_kept(model: nn.Module) -> Iterator[None]:
    """Normalise by the batch's statistics inside the block without adding them to the running ones.

    The second pass sees the same batch at weights that nobody keeps: its statistics belong to no model that is used,
    and every batch would count twice.
    """
    tracking: list[Any] = [module for module in model.modules() if getattr(module, "track_running_stats", False)]
    momenta = [module.momentum for module in tracking]
    for module in tracking:
        module.track_running_stats, module.momentum = False, 0.0  # instance normalisation heeds the second alone
    try:
        yield
    finally:
        for module, momentum in zip(tracking, momenta, strict=True):
            module.track_running_stats, module.momentum = True, momentum
