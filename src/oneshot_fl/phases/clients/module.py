"""Supervised training of one client, as Lightning runs it."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.phases.clients.sam import running_statistics_kept, sharpness_aware
from oneshot_fl.phases.replay import repeated, to_capture
from oneshot_fl.phases.trainer import minimise

Batch = tuple[Tensor, Tensor]
"""Images `[b, C, H, W]` and labels `[b]`."""
NO_GRADIENT = (
    "clients: the model answers without a gradient while it is trained; leave torch.no_grad() and .detach() out of its "
    "forward, also where self.training"
)


class ClientModule(LightningModule):
    """Supervised training of one client: cross-entropy on its own samples; `training_step` is one epoch.

    What Lightning does around a step takes 0.7 ms, a third of a step on 8x8 images; so it does that once per epoch.

    Args:
        batches: the client's samples, one pass each time they are iterated over.
    """

    automatic_optimization = False
    replays = False

    def __init__(self, model: nn.Module, optimizer: OptimizerFactory, batches: Iterable[Batch]) -> None:
        super().__init__()
        self.model, self.optimizer, self.batches = model, optimizer, batches
        self.epoch_losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One pass over the client's samples, with one wait for the device at its end."""
        optimizer: Any = self.optimizers()
        own = to_capture(self, optimizer, self.model.modules()) if type(self) is ClientModule else None
        losses = repeated(partial(self.step, optimizer=optimizer), self.batches, optimizer=own)
        self.epoch_losses.append(float(torch.stack(list(losses)).mean()))

    def step(self, batch: Batch, optimizer: Any) -> Tensor:
        """One step of the optimiser; the loss before it, detached."""
        loss = self.loss(batch)
        minimise(self, loss, optimizer, untrained=NO_GRADIENT)
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy, as a scalar."""
        return F.cross_entropy(at_least_float32(self.model(batch[0])), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The client's optimiser over all its parameters."""
        return self.optimizer(self.model.parameters())

    def facts(self, earlier: int = 0) -> dict[str, Any]:
        """What is known of the training besides its losses: nothing; `earlier` communication rounds were before it."""
        return {}


class SharpnessAwareModule(ClientModule):
    """The same with sharpness-aware minimisation of radius `rho`: two forward and backward passes per step."""

    def __init__(self, model: nn.Module, optimizer: OptimizerFactory, batches: Iterable[Batch], *, rho: float) -> None:
        super().__init__(model, optimizer, batches)
        self.rho = rho

    def step(self, batch: Batch, optimizer: Any) -> Tensor:
        """Step from the weights with the gradient beside them; the loss returned is that at the weights."""
        loss = self.loss(batch)
        with running_statistics_kept(self.model):
            minimise(
                self, loss, optimizer, closure=lambda: self.manual_backward(self.loss(batch)), untrained=NO_GRADIENT
            )
        return loss.detach()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The client's optimiser inside SAM."""
        return sharpness_aware(self.model, self.optimizer, rho=self.rho)
