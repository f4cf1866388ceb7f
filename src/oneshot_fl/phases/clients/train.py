"""Phase 1, local training: one LightningModule a client, one artifact a client, which is all that it uploads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.config.compose import Kind
from oneshot_fl.data.augment import augment
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset, DataSpec
from oneshot_fl.data.partition import Partition
from oneshot_fl.models.cost import multiply_accumulates
from oneshot_fl.models.cvae import CVAE
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.phases.clients.sam import running_statistics_kept, sharpness_aware
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.trainer import EpochEnd, OptimizerFactory, minimise, trainer_of
from oneshot_fl.seeds import seeded, torch_generator
from oneshot_fl.store import Artifact, fingerprint, load_model

Batch = tuple[Tensor, Tensor]
"""Images `[b, C, H, W]` and labels `[b]`."""
REVISION = 1  # raise it when a change here makes other numbers from the same configuration
OFF: Mapping[str, Any] = {"augmentation": "none", "sam": None}
"""Options that came later, at the value that changes nothing; there they stay out of the key, so that clients trained
before an option existed are still found."""


@dataclass(frozen=True)
class ClientPlan:
    """One client before training: the name and settings of its model, how to build it, and what kind it is."""

    name: str
    model_settings: Mapping[str, Any]
    build: Callable[[], nn.Module]
    kind: Kind = "classifier"

    def initial_model(self, seed: int) -> nn.Module:
        """Initial weights depend on seed and architecture only: equal clients start equal, as FedAvg asks."""
        with seeded(seed, "initial weights", self.name):
            return self.build()

    def student(self, seed: int) -> nn.Module:
        """A server model with weights of its own, which no client began at."""
        with seeded(seed, "student weights", self.name):
            return self.build()

    def upload(self, model: Any) -> nn.Module:
        """The part of a trained model that leaves the client: a classifier whole, of a VAE only the decoder."""
        return model if self.kind == "classifier" else model.decoder


@dataclass(frozen=True)
class Training:
    """How one kind of client trains."""

    settings: Mapping[str, Any]
    """`epochs`, `batch_size`, `seed`, the options of `OFF` that are on, and whatever else the result depends on."""
    optimizer: OptimizerFactory


@dataclass(frozen=True)
class InitialModel:
    """Where local training begins after the first communication round: at the server's model."""

    model: nn.Module
    key: str
    communication_round: int
    """1 for the first exchange after the one-shot one."""


@dataclass(frozen=True)
class TrainedClient:
    """One client after its upload."""

    model: nn.Module
    """Its classifier, or the decoder of its VAE."""
    name: str
    key: str
    samples: int
    seconds: float
    macs: int = 0
    """Multiply-accumulates of one image's way through what it trains."""
    kind: Kind = "classifier"
    label_counts: list[int] | None = None
    """Samples of every class, which goes with a decoder only."""


class ClientModule(LightningModule):
    """Supervised training of one client: cross-entropy on its own samples; `training_step` is one epoch.

    What Lightning does around a step takes 0.7 ms, a third of a step on 8x8 images; so it does that once an epoch.

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


class SharpnessAwareModule(ClientModule):
    """The same with sharpness-aware minimisation of radius `rho`: two forward and backward passes a step."""

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


class AutoencoderModule(ClientModule):
    """Training of one client's conditional VAE on pixels; the noise comes from the seeded global generator."""

    model: CVAE

    def __init__(self, model: CVAE, optimizer: OptimizerFactory, batches: Iterable[Batch], *, spec: DataSpec) -> None:
        super().__init__(model, optimizer, batches)
        self.spec = spec

    def loss(self, batch: Batch) -> Tensor:
        """Reconstruction and KL, as a scalar."""
        x, y = batch
        noise = torch.randn(len(x), self.model.latent).to(x.device)
        return self.model.loss(self.spec.to_pixels(x), y, noise)


def train_clients(
    data: Dataset,
    partition: Partition,
    plans: list[ClientPlan],
    *,
    trainings: Mapping[str, Training],
    context: Context,
    start: InitialModel | None = None,
    task: str = "local training",
) -> list[TrainedClient]:
    """Train the m clients one after the other; those that are in the store are only loaded.

    Args:
        trainings: how each kind trains, or an architecture, by its name; all its settings enter the key.
        start: the server's model, of the clients' architecture; None for random weights.
        task: what the progress is called.
    """
    own = [trainings.get(plan.name, trainings[plan.kind]) for plan in plans]
    epochs = [training.settings["epochs"] for training in own]
    progress = context.progress.task(task, sum(epochs), "client epochs")
    trained = []
    for k, plan in enumerate(plans):
        client = _LocalClient(k, plan, own[k], torch.from_numpy(partition.indices[k]), start)
        advance = EpochEnd(lambda _, k=k: progress.advance(f"client {k + 1} of {len(plans)}"))  # type: ignore[misc]
        trained.append(client.train(data, advance, context))
        progress.reach(sum(epochs[: k + 1]))
    progress.finish()
    return trained


@dataclass(frozen=True)
class _LocalClient:
    """One client with its own samples, before it has uploaded anything."""

    number: int
    plan: ClientPlan
    training: Training
    index: Tensor
    """Its samples in the training set."""
    start: InitialModel | None

    @property
    def settings(self) -> dict[str, Any]:
        return {**OFF, **self.training.settings}

    @property
    def draws(self) -> tuple[str | int, ...]:
        """What its random draws depend on besides the seed."""
        return (self.number, *self._again.values())

    @property
    def _again(self) -> dict[str, str | int]:
        if self.start is None:
            return {}
        return {"start": self.start.key, "communication_round": self.start.communication_round}

    def train(self, data: Dataset, advance: EpochEnd, context: Context) -> TrainedClient:
        """Train or load; what is stored is what is uploaded."""
        artifact = context.store.get_or_make("clients", self._inputs(data), lambda _: self._fit(data, advance, context))
        source = f"client {self.number} ({context.store.root}/clients/{artifact.key})"
        whole = self.plan.build()
        macs = multiply_accumulates(whole, *_one_image(data.spec, whole))
        model = load_model(self.plan.upload(whole), artifact.tensors, source)
        for epoch, loss in enumerate(artifact.facts["losses"]):
            context.log.log({f"clients/{self.number:02d}/loss": loss}, epoch)
        counts = artifact.facts.get("label_counts")
        plan = self.plan
        return TrainedClient(model, plan.name, artifact.key, len(self.index), artifact.seconds, macs, plan.kind, counts)

    def _inputs(self, data: Dataset) -> dict[str, Any]:
        options = {name: value for name, value in self.settings.items() if name not in OFF or value != OFF[name]}
        return {
            "revision": REVISION,
            "data": data.fingerprint,
            "samples": fingerprint(self.index.tolist()),
            "model": dict(self.plan.model_settings),
            "settings": options,
            "client": self.number,
            **({} if self.plan.kind == "classifier" else {"kind": self.plan.kind}),
            **self._again,
        }

    def _fit(self, data: Dataset, advance: EpochEnd, context: Context) -> Artifact:
        module = self._module(data)
        if self.settings["epochs"] > 0:
            with (
                trainer_of(module, context.trainer, epochs=self.settings["epochs"], callbacks=[advance]) as trainer,
                seeded(self.settings["seed"], "client training", *self.draws),
            ):
                trainer.fit(module, train_dataloaders=range(1))
        facts: dict[str, Any] = {"losses": module.epoch_losses}
        if self.plan.kind == "cvae":
            labels = data.train_labels[self.index.to(data.train_labels.device)]
            facts["label_counts"] = labels.bincount(minlength=data.spec.classes).tolist()
        return Artifact(self.plan.upload(module.model).state_dict(), facts)

    def _module(self, data: Dataset) -> ClientModule:
        model: Any = self.plan.initial_model(self.settings["seed"])
        if self.start is not None:
            model.load_state_dict(self.start.model.state_dict())
        given = model, self.training.optimizer, self._batches(data)
        if self.plan.kind == "cvae":
            return AutoencoderModule(*given, spec=data.spec)
        if self.settings["sam"] is None:
            return ClientModule(*given)
        return SharpnessAwareModule(*given, rho=self.settings["sam"])

    def _batches(self, data: Dataset) -> ImageBatches:
        index = self.index.to(data.train_labels.device)
        rng = torch_generator(self.settings["seed"], "client batches", *self.draws)
        return ImageBatches(
            data.train_images[index],
            data.train_labels[index],
            spec=data.spec,
            batch_size=self.settings["batch_size"],
            rng=rng,
            augment=partial(augment, name=self.settings["augmentation"], rng=rng),
        )


def _one_image(spec: DataSpec, model: nn.Module) -> tuple[Tensor, ...]:
    """What one image's way through a classifier, or through a VAE and back, takes as its inputs."""
    image = torch.zeros(1, spec.channels, spec.size, spec.size)
    if not isinstance(model, CVAE):
        return (image,)
    return image, torch.zeros(1, dtype=torch.long), torch.zeros(1, model.latent)
