"""Phase 1, local training: one LightningModule a client, one artifact a client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.artifacts import Artifact, fingerprint, load_model
from oneshot_fl.data.augment import augment
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset
from oneshot_fl.data.partition import Partition
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.sam import running_statistics_kept, sharpness_aware
from oneshot_fl.phases.trainer import EpochEnd, OptimizerFactory, make_trainer
from oneshot_fl.seeds import seeded, torch_generator

REVISION = 1  # raise it when a change here makes other numbers from the same configuration
OFF: Mapping[str, Any] = {"augmentation": "none", "sam": None}
"""Options that came later, at the value that changes nothing; there they stay out of the key, so that clients trained
before an option existed are still found."""


@dataclass(frozen=True)
class ClientPlan:
    """One client before training: the name and settings of its model, and how to build it."""

    name: str
    model_settings: Mapping[str, Any]
    build: Callable[[], nn.Module]

    def initial_model(self, seed: int) -> nn.Module:
        """Initial weights depend on seed and architecture only: equal clients start equal, as FedAvg asks."""
        with seeded(seed, "initial weights", self.name):
            return self.build()

    def student(self, seed: int) -> nn.Module:
        """A server model with weights of its own, which no client began at."""
        with seeded(seed, "student weights", self.name):
            return self.build()


@dataclass(frozen=True)
class Start:
    """Where local training begins after the first communication round: at the server's model."""

    model: nn.Module
    key: str
    communication_round: int
    """1 for the first exchange after the one-shot one."""


@dataclass(frozen=True)
class TrainedClient:
    """One client after its upload."""

    model: nn.Module
    name: str
    key: str
    samples: int
    seconds: float


class ClientModule(LightningModule):
    """Supervised training of one client: cross-entropy on its own samples."""

    def __init__(self, model: nn.Module, optimizer: OptimizerFactory) -> None:
        super().__init__()
        self.model, self.optimizer = model, optimizer
        self.step_losses: list[Tensor] = []
        self.epoch_losses: list[float] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Images `[b, C, H, W]` and labels `[b]` -> the mean cross-entropy."""
        loss = self.loss(batch)
        self.step_losses.append(loss.detach())
        return loss

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The mean cross-entropy, as a scalar."""
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def on_train_epoch_end(self) -> None:
        """One wait for the device an epoch, not one a step."""
        self.epoch_losses.append(float(torch.stack(self.step_losses).mean()))
        self.step_losses.clear()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The client's optimiser over all its parameters."""
        return self.optimizer(self.model.parameters())


class SharpnessAwareModule(ClientModule):
    """The same with sharpness-aware minimisation of radius `rho`: two forward and backward passes a step."""

    automatic_optimization = False

    def __init__(self, model: nn.Module, optimizer: OptimizerFactory, *, rho: float) -> None:
        super().__init__(model, optimizer)
        self.rho = rho

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Step from the weights with the gradient beside them; the loss returned is that at the weights."""
        optimizer = self.optimizers()
        optimizer.zero_grad()  # type: ignore[union-attr]
        loss = super().training_step(batch, batch_idx)
        self.manual_backward(loss)
        with running_statistics_kept(self.model):
            optimizer.step(closure=lambda: self.manual_backward(self.loss(batch)))  # type: ignore[union-attr]
        return loss.detach()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The client's optimiser inside SAM."""
        return sharpness_aware(self.model, self.optimizer, rho=self.rho)


def train_clients(
    data: Dataset,
    partition: Partition,
    plans: list[ClientPlan],
    *,
    settings: Mapping[str, Any],
    optimizer: OptimizerFactory,
    context: Context,
    start: Start | None = None,
) -> list[TrainedClient]:
    """Train the m clients one after the other; those that are in the store are only loaded.

    Args:
        settings: `epochs`, `batch_size`, `seed`, the options of `OFF` that are on, and whatever else the result depends
            on; all of it enters the key.
        start: the server's model, of the clients' architecture; None for random weights.
    """
    again: dict[str, str | int] = (
        {} if start is None else {"start": start.key, "communication_round": start.communication_round}
    )
    task = context.progress.task("local training", len(plans) * settings["epochs"], "client epochs")
    settings, trained = {**OFF, **settings}, []
    for k, plan in enumerate(plans):
        index = torch.from_numpy(partition.indices[k])
        inputs = {
            "revision": REVISION,
            "data": data.fingerprint,
            "samples": fingerprint(index.tolist()),
            "model": dict(plan.model_settings),
            "settings": _without_what_is_off(settings),
            "client": k,
            **again,
        }

        def train(_work: Any, k: int = k, plan: ClientPlan = plan, index: Tensor = index) -> Artifact:
            module = _module(_initial_model(plan, settings["seed"], start), optimizer, settings)
            advance = EpochEnd(lambda _: task.advance(f"client {k + 1} of {len(plans)}"))
            draws = (k, *again.values())
            _fit(module, _batches(data, index, settings, draws), settings, draws, advance, context)
            return Artifact(module.model.state_dict(), {"losses": module.epoch_losses})

        artifact = context.store.get_or_make("clients", inputs, train)
        source = f"client {k} ({context.store.root}/clients/{artifact.key})"
        model = load_model(plan.build(), artifact.tensors, source)
        trained.append(TrainedClient(model, plan.name, artifact.key, len(index), artifact.seconds))
        for epoch, loss in enumerate(artifact.facts["losses"]):
            context.log.log({f"clients/{k:02d}/loss": loss}, epoch)
        task.reach((k + 1) * settings["epochs"])
    task.finish()
    return trained


def _without_what_is_off(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in OFF or value != OFF[name]}


def _initial_model(plan: ClientPlan, seed: int, start: Start | None) -> nn.Module:
    model = plan.initial_model(seed)
    if start is not None:
        model.load_state_dict(start.model.state_dict())
    return model


def _module(model: nn.Module, optimizer: OptimizerFactory, settings: Mapping[str, Any]) -> ClientModule:
    rho = settings["sam"]
    return ClientModule(model, optimizer) if rho is None else SharpnessAwareModule(model, optimizer, rho=rho)


def _batches(data: Dataset, index: Tensor, settings: Mapping[str, Any], draws: tuple[str | int, ...]) -> ImageBatches:
    index = index.to(data.train_labels.device)
    rng = torch_generator(settings["seed"], "client batches", *draws)
    return ImageBatches(
        data.train_images[index],
        data.train_labels[index],
        spec=data.spec,
        batch_size=settings["batch_size"],
        rng=rng,
        augment=partial(augment, name=settings["augmentation"], rng=rng),
    )


def _fit(
    module: ClientModule,
    batches: ImageBatches,
    settings: Mapping[str, Any],
    draws: tuple[str | int, ...],
    advance: EpochEnd,
    context: Context,
) -> None:
    if settings["epochs"] == 0:
        return
    trainer = make_trainer(context.trainer, epochs=settings["epochs"], callbacks=[advance])
    with seeded(settings["seed"], "client training", *draws):
        trainer.fit(module, train_dataloaders=batches)
