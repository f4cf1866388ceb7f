"""Phase 1, local training: one LightningModule per client, one artifact per client, which is all that it uploads."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from lightning.pytorch import Callback
from torch import Tensor, nn

from oneshot_fl.artifacts import Artifact, fingerprint, load_model
from oneshot_fl.data.augment import augment
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset, DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.ledger import Cost
from oneshot_fl.models.architecture import Architecture, InitialModel
from oneshot_fl.models.cost import Passes, multiply_accumulates
from oneshot_fl.models.layout import to_channels_last
from oneshot_fl.models.soundness import first_unsound
from oneshot_fl.models.trial import require_learnt_in_state
from oneshot_fl.parts.attacks import Poison
from oneshot_fl.parts.uploads import ClassifierUpload, DecoderUpload
from oneshot_fl.phases.clients.module import Batch, ClientModule
from oneshot_fl.phases.clients.samples import OwnSamples, own_samples
from oneshot_fl.phases.clients.training import Sent, Training
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.keyed import keyed
from oneshot_fl.phases.side_by_side import make_all
from oneshot_fl.phases.trainer import EpochEnd, TrainerSettings, trainer_of
from oneshot_fl.recipe import Recipe, described
from oneshot_fl.seeds import seeded, torch_generator
from oneshot_fl.store import Wanted
from oneshot_fl.tracking.progress import Task


class Kind(Protocol):
    """What a client trains and what of it leaves."""

    name: ClassVar[str]
    uploads: ClassVar[str]
    """What it uploads, in the word of parts' `needs`."""
    settings: ClassVar[str]
    """The configuration's key of its training."""

    def check(self, architecture: Architecture, training: Training, samples: Iterable[int], spec: DataSpec) -> None:
        """Refuse what would only fail when a client trains; `samples` is how many each client of them has."""

    def module(
        self,
        model: nn.Module,
        training: Training,
        batches: Iterable[Batch],
        spec: DataSpec,
    ) -> ClientModule:
        """What trains the model."""

    def uploaded(self, model: nn.Module) -> nn.Module:
        """The part of a trained model that leaves the client."""

    def facts(self, labels: Tensor, classes: int) -> dict[str, Any]:
        """What is uploaded beside it, from the client's labels `[n]`."""

    def one_image(self, spec: DataSpec, model: nn.Module) -> tuple[Tensor, ...]:
        """The inputs of one image's pass through what is trained."""

    def probe(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """What the trained model answers on some of its samples; has to be finite."""

    def upload(self, model: nn.Module, sent: Sent) -> ClassifierUpload | DecoderUpload:
        """The upload as the server holds it."""


@dataclass(frozen=True)
class ClientPlan:
    """One client before training."""

    architecture: Architecture
    training: Training
    kind: Kind
    own_rate_key: str | None = None
    """The configuration's key of the learning rate, where that is not the one that all of its kind share."""
    poison: Recipe[Poison] | None = None
    """What changes its samples before it trains, where it is hostile."""

    @property
    def rate_key(self) -> str:
        """The configuration's key of the learning rate, which a user has to change where training diverges."""
        return self.own_rate_key or f"{self.kind.settings}.optimizer.lr"


@dataclass(frozen=True)
class TrainedClient:
    """One client after its upload."""

    upload: ClassifierUpload | DecoderUpload
    kind: str
    name: str
    """Of its architecture."""
    samples: int
    cost: Cost
    macs: int
    """Multiply-accumulates of one image's pass through what it trains."""
    from_store: bool = False
    """Whether it was trained before."""
    epsilon: float | None = None
    """What differentially private training has spent since the first communication round; None: it is not private."""


def train_clients(
    data: Dataset,
    indices: Sequence[Tensor],
    plans: Sequence[ClientPlan],
    *,
    context: Context,
    start: InitialModel | None = None,
    label_counts: bool = False,
    first: int = 0,
    task: str = "local training",
) -> list[TrainedClient]:
    """Train the m clients, `context.workers` at once; those that are in the store are only loaded.

    Args:
        indices: each client's samples in the training set.
        start: the server's model, of the clients' architecture; None for random weights.
        label_counts: whether clients with a classifier also upload how many samples of every class they have.
        first: number of the first of them, on which their random draws depend; the others follow.
        task: what the progress is called.

    Raises:
        OneshotError: one of them cannot train as it is told, and none has; or one's training diverged, and nothing of
            it is stored.
    """
    epochs = [plan.training.epochs for plan in plans]
    progress = context.progress.task(task, sum(epochs), "client epochs")
    samples = [_samples(own_samples(data, index), plan.poison) for index, plan in zip(indices, plans, strict=True)]
    clients = [_LocalClient(first + k, plan, samples[k], start) for k, plan in enumerate(plans)]
    wanted = [
        keyed(
            Wanted(
                "clients",
                client.inputs(data.fingerprint, indices[k]),
                partial(client.fit, context.trainer, _advance(progress, k, len(plans))),
            ),
            __name__,
            type(client.plan.kind).__module__,
        )
        for k, client in enumerate(clients)
    ]
    _check([client for client, one in zip(clients, wanted, strict=True) if not context.store.has(one)])
    artifacts = make_all(wanted, epochs, context=context, task=progress)
    progress.finish()
    pairs = zip(clients, artifacts, strict=True)
    return [client.trained(artifact, context, label_counts=label_counts) for client, artifact in pairs]


def _check(clients: Sequence["_LocalClient"]) -> None:
    """Refuse what cannot train before anybody does, clients of one architecture and training together."""
    alike: dict[tuple[int, int], list[_LocalClient]] = {}
    for client in clients:
        alike.setdefault((id(client.plan.architecture), id(client.plan.training)), []).append(client)
    for group in alike.values():
        plan, spec = group[0].plan, group[0].samples.spec
        plan.kind.check(plan.architecture, plan.training, [len(each.samples) for each in group], spec)


def _samples(own: OwnSamples, poison: Recipe[Poison] | None) -> OwnSamples:
    """What a client trains on and counts; a hostile one's samples are what it has made of them."""
    if poison is None:
        return own
    images, labels = poison()(own.images, own.labels, own.spec.classes)
    return OwnSamples(own.spec, images, labels, torch.arange(len(labels)).to(labels.device))


def _advance(progress: Task, k: int, m: int) -> Callable[[], None]:
    return partial(progress.advance, f"client {k + 1} of {m}")


@dataclass(frozen=True)
class _LocalClient:
    """One client with the samples that it trains on and nobody else's, before it has uploaded anything."""

    number: int
    plan: ClientPlan
    samples: OwnSamples
    start: InitialModel | None

    @property
    def draws(self) -> tuple[str | int, ...]:
        """What its random draws depend on besides the seed."""
        return (self.number, *self._again.values())

    @property
    def _again(self) -> dict[str, str | int]:
        if self.start is None:
            return {}
        return {"start": self.start.key, "communication_round": self.start.communication_round}

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"client {self.number} ({self.plan.architecture.name})"

    def inputs(self, data: str, index: Tensor) -> dict[str, Any]:
        """Everything that its upload depends on but the code; `data` is the data set's fingerprint."""
        return {
            "data": data,
            "samples": fingerprint(index.tolist()),
            "client": self.number,
            "kind": self.plan.kind.name,
            "architecture": described(self.plan.architecture),
            "training": described(self.plan.training),
            **self._again,
            **({} if self.plan.poison is None else {"poison": described(self.plan.poison)}),
        }

    def fit(self, settings: TrainerSettings, advance: Callable[[], None], work: Path) -> Artifact:
        """Train; what is stored is what is uploaded. Stopped in the middle, it begins anew."""
        training = self.plan.training
        module, passes = self._module(), Passes()
        watch = EpochEnd(lambda module: self._require_finite(module.epoch_losses[-1], len(module.epoch_losses)))
        if training.epochs > 0:
            callbacks: list[Callback] = [watch, EpochEnd(lambda _: advance())]
            with (
                trainer_of(module, settings, epochs=training.epochs, callbacks=callbacks) as trainer,
                seeded(training.seed, "client training", *self.draws),
                passes.watched([module.model]),
            ):
                trainer.fit(module, train_dataloaders=range(1))
        self._probe(module.model, settings)
        facts = {
            "losses": module.epoch_losses,
            **module.facts(0 if self.start is None else self.start.communication_round),
            **self.plan.kind.facts(self.samples.labels, self.samples.spec.classes),
        }
        return Artifact(self.plan.kind.uploaded(module.model).state_dict(), facts, cost=Cost(macs=passes.macs))

    def trained(self, artifact: Artifact, context: Context, *, label_counts: bool) -> TrainedClient:
        """The client after its upload."""
        source = f"client {self.number} ({context.store.root}/clients/{artifact.key})"
        kind, spec = self.plan.kind, self.samples.spec
        build = partial(self.plan.architecture.build, spec)
        whole = build()
        macs = multiply_accumulates(whole, *kind.one_image(spec, whole))
        model = load_model(kind.uploaded(whole), artifact.tensors, source)
        for epoch, loss in enumerate(artifact.facts["losses"]):
            context.log.log({f"clients/{self.number:02d}/loss": loss}, epoch)
        counts = self.samples.labels.bincount(minlength=spec.classes).cpu() if label_counts else None
        sent = Sent(artifact.key, len(self.samples), artifact.facts, counts, build)
        return TrainedClient(
            kind.upload(model, sent),
            kind.name,
            self.plan.architecture.name,
            len(self.samples),
            artifact.cost,
            macs,
            artifact.from_store,
            artifact.facts.get("epsilon"),
        )

    def _module(self) -> ClientModule:
        plan, spec = self.plan, self.samples.spec
        own = self.number if plan.training.initial_weights == "own" else None
        model = plan.architecture.as_clients_begin(spec, plan.training.seed, own)
        if self.start is not None:
            model.load_state_dict(self.start.model.state_dict())
        return plan.kind.module(model, plan.training, self._batches(), spec)

    def _batches(self) -> ImageBatches:
        training, spec = self.plan.training, self.samples.spec
        rng = torch_generator(training.seed, "client batches", *self.draws)
        return ImageBatches(
            self.samples.images,
            self.samples.labels,
            spec=spec,
            batch_size=training.batch_size,
            rng=rng,
            augment=partial(augment, name=training.augmentation, rng=rng),
        )

    def _require_finite(self, loss: float, epoch: int) -> None:
        if not math.isfinite(loss):
            raise self._diverged(f"its loss is {loss} in epoch {epoch}")

    @torch.no_grad()
    def _probe(self, model: nn.Module, settings: TrainerSettings) -> None:
        """Nothing is stored that would be refused when it is loaded, that answers nonsense, or only half of a model."""
        model.eval()
        x, y = self.samples.first(self.plan.training.batch_size)
        if name := first_unsound(model):
            raise self._diverged(f"{name} is not finite or, of a variance, not above 0")
        model.to(x.device)
        if not bool(torch.isfinite(self.plan.kind.probe(model, x, y)).all()):
            raise self._diverged("its answers are not finite")
        if self.plan.architecture.is_foreign:  # ours keep all in their state
            again = self.plan.architecture.student(self.samples.spec, self.plan.training.seed).eval().to(x.device)
            if settings.channels_last:  # which rounds otherwise
                to_channels_last(again)
            require_learnt_in_state(model, again, partial(self.plan.kind.probe, x=x, y=y), self.name)

    def _diverged(self, how: str) -> OneshotError:
        plan = self.plan
        rate = plan.training.optimizer.settings.get("lr")
        return OneshotError(f"{self.name}: training diverged, {how}; lower {plan.rate_key}={rate}")
