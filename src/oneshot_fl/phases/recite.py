"""Phase 2, recitals: every client's model alone is inverted to images of what it knows (FedChorus, Eqs. 1-4).

The objective is made of the loss terms that generators are trained with; here they see one client instead of all.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from oneshot_fl.artifacts import Artifact, Spent
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank, has_batch_norm
from oneshot_fl.models.cost import Passes
from oneshot_fl.models.generators import Generator
from oneshot_fl.models.optimizers import OptimizerFactory, fused
from oneshot_fl.models.soundness import TURNED_AWAY, first_not_finite
from oneshot_fl.parts.moved import Mirrored, mirrors
from oneshot_fl.parts.objective import Objective, objective_of
from oneshot_fl.parts.recitals import Start, drawings, shaken, shown_label_shares
from oneshot_fl.parts.slots import Term
from oneshot_fl.parts.uploads import ClassifierUpload, Recital, Uploads, known_classes
from oneshot_fl.parts.view import View
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.keyed import keyed
from oneshot_fl.phases.piecewise import Counted, piecewise
from oneshot_fl.phases.schedule import anneal
from oneshot_fl.phases.side_by_side import make_all
from oneshot_fl.phases.trainer import TrainerSettings, minimise, trainer_of
from oneshot_fl.recipe import Recipe, described
from oneshot_fl.seeds import torch_generator
from oneshot_fl.store import Wanted
from oneshot_fl.tracking.progress import Task
from oneshot_fl.values import BatchSize, BelowOne, Count, Images, Positive, Seed

Labels = Literal["counts", "estimated"]


@dataclass(frozen=True)
class Recitation:
    """The settings of this phase."""

    images: Images
    """Of each client."""
    batch_size: BatchSize
    """Images that are inverted together: their moments are matched with the client's."""
    steps: Count
    labels: Labels
    """Where a client's own label distribution comes from: the counts it uploaded, or what its model shows."""
    generator: Recipe[Generator]
    """What is optimised, anew for every batch: pixels, or the weights of a generator."""
    start: Start
    shaken: BelowOne
    """By up to this share of their side a client sees the images moved in every step, rounded to pixels."""
    mirrored: Mirrored
    """Which of the images that are moved it sees mirrored, half the time."""
    optimizer: Recipe[torch.optim.Optimizer]
    without_statistics: Positive
    """What its learning rate is multiplied by where a client has no running statistics."""
    objective: Mapping[str, Recipe[Term]]
    seed: Seed

    @property
    def needs(self) -> frozenset[str]:
        """What clients upload for it besides their models."""
        return frozenset({"label_counts"}) if self.labels == "counts" else frozenset()

    def seen(self, spec: DataSpec, rng: torch.Generator) -> Callable[[Tensor], Tensor]:
        """How a client sees images of this kind while they are made."""
        most = round(self.shaken * spec.size)
        mirrored = mirrors(self.mirrored, grey=spec.grey)
        return partial(shaken, most=most, rng=rng, mirrored=mirrored) if most else lambda images: images

    def pace(self, client: nn.Module) -> float:
        """Smaller steps without statistics: nothing else keeps images from being what this client alone understands."""
        return 1.0 if has_batch_norm(client) else self.without_statistics


@dataclass(frozen=True)
class Recitals:
    """Every client's recital, and what they cost when they were made."""

    of_clients: tuple[Recital, ...]
    spent: Spent
    clients: tuple[str, ...]
    """What reports call those who recited, in the same order."""


class ReciteModule(LightningModule):
    """One batch of images of one client; `training_step` is all steps.

    Args:
        client: f_k.
        generator: from noise `z` to images.
        y: what the images are to show, `[b]`.
        seen: how the client sees images in a step.
        pace: what the optimiser's learning rate is multiplied by.
    """

    automatic_optimization = False

    y: Tensor
    z: Tensor

    def __init__(
        self,
        client: nn.Module,
        generator: Generator,
        objective: Objective,
        *,
        y: Tensor,
        z: Tensor,
        seen: Callable[[Tensor], Tensor],
        steps: int,
        optimizer: OptimizerFactory,
        pace: float,
    ) -> None:
        super().__init__()
        self.bank, self.generator, self.objective = ClientBank([client], mode="loop"), generator, objective
        self.seen, self.steps, self.optimizer, self.pace = seen, steps, optimizer, pace
        self.register_buffer("y", y)
        self.register_buffer("z", z)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Lower the objective step by step."""
        optimizer: Any = self.optimizers()
        for _ in range(self.steps):
            view = View(
                self.seen(self.generator(self.z)),
                self.y,
                student=None,
                bank=self.bank,
                ensemble=lambda votes: votes.P[0],
                needs=self.objective.needs,
            )
            minimise(self, self.objective(view)[0], optimizer)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Of what is optimised."""
        optimizer = self.optimizer(self.generator.parameters())  # type: ignore[attr-defined]  # generators are modules
        anneal(optimizer, self.pace)
        return optimizer

    @torch.no_grad()
    def images(self) -> Tensor:
        """What came of it, `[b, C, H, W]` as models see them."""
        return self.generator(self.z)


def recite(uploads: Uploads, *, spec: DataSpec, settings: Recitation, context: Context) -> Recitals:
    """Invert every client with a classifier; one artifact per client, resumable after every batch."""
    m = len(uploads.classifiers)
    task = context.progress.task("recitals", m * settings.images, "images")
    wanted = []
    for upload in uploads.classifiers:
        inputs = {
            "client": upload.key,
            "label_counts": _known(upload, settings),
            "number": upload.draws,
            "spec": described(spec),
            "settings": described(settings),
        }
        make = partial(_recital, upload, spec, settings, context.trainer, task)
        wanted.append(keyed(Wanted("recite", inputs, make), __name__))
    artifacts = make_all(wanted, [settings.images] * m, context=context, task=task)
    task.finish()
    made = tuple(Recital(each.tensors["images"], each.tensors["labels"], each.key) for each in artifacts)
    return Recitals(made, Spent.on(artifacts), tuple(upload.name for upload in uploads.classifiers))


def _recital(
    upload: ClassifierUpload,
    spec: DataSpec,
    settings: Recitation,
    trainer: TrainerSettings,
    task: Task,
    work: Path,
) -> Artifact:
    """One client's, batch by batch."""
    y = _labels(upload, spec, settings, torch_generator(settings.seed, "recital labels", upload.draws))
    invert = partial(_invert, upload, spec, settings, trainer)
    batches = enumerate(y.split(settings.batch_size))
    makes = {f"batch-{number:04d}.pt": partial(invert, labels, number) for number, labels in batches}
    images, cost = piecewise(makes, work, task)
    return Artifact({"images": images[: settings.images], "labels": y[: settings.images]}, {}, cost=cost)


def _known(upload: ClassifierUpload, settings: Recitation) -> list[int] | None:
    """The label counts, where they are asked for."""
    if settings.labels == "estimated":
        return None
    if upload.label_counts is None:
        raise ValueError("label counts are declared as a need and have to be there")
    return upload.label_counts.tolist()


def _labels(upload: ClassifierUpload, spec: DataSpec, settings: Recitation, rng: torch.Generator) -> Tensor:
    """Drawn from the client's own label distribution, for whole batches: at least `images` labels."""
    known = _known(upload, settings)
    shares = _estimated(upload, spec, rng) if known is None else torch.tensor(known)
    whole = math.ceil(settings.images / settings.batch_size) * settings.batch_size
    return torch.multinomial(shares.double(), whole, replacement=True, generator=rng)


def _estimated(upload: ClassifierUpload, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """The label distribution `[c]` that the client's model shows; it has nothing of classes without an output."""
    shares = shown_label_shares(upload.model, spec, rng)
    if not bool(torch.isfinite(shares).all()):
        raise OneshotError(
            f"recite.labels=estimated: {upload.name} answers with numbers that are not finite, which show no labels; "
            f"{TURNED_AWAY}"
        )
    return shares * known_classes([upload], spec.classes)[0]


def _invert(
    upload: ClassifierUpload,
    spec: DataSpec,
    settings: Recitation,
    trainer_settings: TrainerSettings,
    y: Tensor,
    number: int,
) -> Counted:
    """One batch as bytes `[b, C, H, W]`; its random draws depend on the client and the batch only."""
    rng = torch_generator(settings.seed, "recital", upload.draws, number)
    generator = settings.generator(spec=spec)
    generator.reset(rng)
    z = generator.sample_noise(len(y), rng)
    if settings.start == "drawings":
        generator.show(drawings(len(y), spec, rng))  # type: ignore[attr-defined]  # `config.images` asks for it
    module = ReciteModule(
        upload.model,
        generator,
        objective_of(settings.objective, "recite.objective"),
        y=y,
        z=z,
        seen=settings.seen(spec, rng),
        steps=settings.steps,
        optimizer=fused(settings.optimizer),
        pace=settings.pace(upload.model),
    )
    passes = Passes()
    with trainer_of(module, trainer_settings) as trainer, passes.watched(module.children()):
        trainer.fit(module, train_dataloaders=range(1))
    images = module.images().cpu()
    if not bool(torch.isfinite(images).all()):
        raise _diverged(upload, settings)
    return spec.to_bytes(images), passes.macs


def _diverged(upload: ClassifierUpload, settings: Recitation) -> OneshotError:
    if tensor := first_not_finite(upload.model):
        return OneshotError(f"recitals of {upload.name}: tensor {tensor} of its upload is not finite; {TURNED_AWAY}")
    return OneshotError(
        f"recitals of {upload.name} diverged: their pixels are not finite; lower "
        f"recite.optimizer.lr={settings.optimizer.settings.get('lr')}"
    )
