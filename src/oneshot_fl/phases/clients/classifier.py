"""Clients that train a classifier and upload it whole."""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.optimizers import OptimizerFactory, fused
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.parts.uploads import ClassifierUpload
from oneshot_fl.phases.clients.sam import running_statistics_kept, sharpness_aware
from oneshot_fl.phases.clients.training import Sent, Training
from oneshot_fl.phases.trainer import minimise

Batch = tuple[Tensor, Tensor]
"""Images `[b, C, H, W]` and labels `[b]`."""


class ClientModule(LightningModule):
    """Supervised training of one client: cross-entropy on its own samples; `training_step` is one epoch.

    What Lightning does around a step takes 0.7 ms, a third of a step on 8x8 images; so it does that once per epoch.

    Args:
        batches: the client's samples, one pass each time they are iterated over.
    """

    automatic_optimization = False

    def __init__(self, model: nn.Module, optimizer: OptimizerFactory, batches: Iterable[Batch]) -> None:
        super().__init__()
        self.model, self.optimizer, self.batches = model, optimizer, batches
        self.epoch_losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One pass over the client's samples, with one wait for the device at its end."""
        optimizer = self.optimizers()
        losses = [self.step(batch, optimizer) for batch in self.batches]
        self.epoch_losses.append(float(torch.stack(losses).mean()))

    def step(self, batch: Batch, optimizer: Any) -> Tensor:
        """One step of the optimiser; the loss before it, detached."""
        loss = self.loss(batch)
        minimise(self, loss, optimizer)
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy, as a scalar."""
        return F.cross_entropy(at_least_float32(self.model(batch[0])), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The client's optimiser over all its parameters."""
        return self.optimizer(self.model.parameters())

    def facts(self) -> dict[str, Any]:
        """What is known of the training besides its losses: nothing."""
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
            minimise(self, loss, optimizer, closure=lambda: self.manual_backward(self.loss(batch)))
        return loss.detach()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The client's optimiser inside SAM."""
        return sharpness_aware(self.model, self.optimizer, rho=self.rho)


class Classifier:
    """This kind of client, as `phases.clients.train` asks it."""

    name: ClassVar[str] = "classifier"
    uploads: ClassVar[str] = "classifiers"
    settings: ClassVar[str] = "clients"
    """The configuration's key of its training."""

    def module(
        self,
        model: nn.Module,
        training: Training,
        batches: Iterable[Batch],
        spec: DataSpec,
    ) -> ClientModule:
        """What trains the model."""
        optimizer = fused(training.optimizer)
        if training.epsilon is not None:
            return _private(model, optimizer, batches, training)
        if training.sam is None:
            return ClientModule(model, optimizer, batches)
        return SharpnessAwareModule(model, optimizer, batches, rho=training.sam)

    def uploaded(self, model: nn.Module) -> nn.Module:
        """The part of a trained model that leaves the client: all of it."""
        return model

    def facts(self, labels: Tensor, classes: int) -> dict[str, Any]:
        """What is uploaded beside it: nothing."""
        return {}

    def one_image(self, spec: DataSpec, model: nn.Module) -> tuple[Tensor, ...]:
        """The inputs of one image's pass through the model."""
        return (torch.zeros(1, spec.channels, spec.size, spec.size),)

    def probe(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """What the trained model makes of some of its samples: logits `[b, c]`."""
        return model(x)

    def upload(self, model: nn.Module, spec: DataSpec, sent: Sent) -> ClassifierUpload:
        """The upload as the server holds it."""
        return ClassifierUpload(model, sent.samples, sent.key, sent.label_counts)


def _private(
    model: nn.Module, optimizer: OptimizerFactory, batches: Iterable[Batch], training: Training
) -> ClientModule:
    """What trains privately; only this needs Opacus."""
    try:
        from oneshot_fl.phases.clients.private import PrivateModule
    except ModuleNotFoundError as error:
        raise OneshotError(
            f"clients.epsilon={training.epsilon:g}: {error.name} is missing; pip install 'oneshot-fl[privacy]', or set "
            "it to null"
        ) from error
    return PrivateModule(model, optimizer, batches, training=training)
