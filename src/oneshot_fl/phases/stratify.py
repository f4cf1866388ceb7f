"""Phase 2, model stratification (FedHydra, Algorithm 2): how well each client guides a generator to each class.

The algorithm trains one generator per client and class. Here the classes of a client run as one batch of
`torch.func`-stacked generators; `classes_at_once` bounds the memory, and 1 is the sequential algorithm. `auto` stacks
none on a CPU, where it takes the same time and less memory (docs/results/speed.md), and all on an accelerator, where
single ones would each wait for Python: on an H200 all at once are 1.6 to 2.9 times as fast from Python in bf16 or grey.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from oneshot_fl.artifacts import Artifact, Spent
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.fedhydra import guidance_capability
from oneshot_fl.models.cost import PASSED, TRAINED, of_one
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.models.optimizers import OptimizerFactory, fused
from oneshot_fl.models.place import place_of
from oneshot_fl.models.precision import at_least_float32, autocast_dtype, cast_products, like_autocast
from oneshot_fl.parts.uploads import ClassifierUpload, Uploads, known_classes
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.keyed import keyed
from oneshot_fl.phases.piecewise import Counted, piecewise
from oneshot_fl.phases.replay import repeated, to_capture
from oneshot_fl.phases.side_by_side import make_all
from oneshot_fl.phases.trainer import TrainerSettings, device_of, minimise, trainer_of
from oneshot_fl.recipe import Recipe, described
from oneshot_fl.seeds import torch_generator
from oneshot_fl.store import Wanted
from oneshot_fl.tracking.progress import Task
from oneshot_fl.values import BatchSize, Count, Positive, Seed

Start = tuple[ConvGenerator, Tensor]
"""The weights and the noise that all generators begin with."""
LEAST = torch.finfo(torch.float32).tiny
"""Capability of a client for a class that it has, where others lack classes, however little its loss moves."""


@dataclass(frozen=True)
class Stratification:
    """The settings of this phase."""

    steps: Count
    """T_G"""
    batch_size: BatchSize
    classes_at_once: Count | Literal["auto"]
    min_loss: Positive
    """Lower bound of min L in Eq. 2."""
    optimizer: Recipe[torch.optim.Optimizer]
    seed: Seed


class StratifyModule(LightningModule):
    """Generators for some classes of one client, trained together; `training_step` is all of the T_G steps.

    Every step's loss of every class is kept.

    Args:
        client: the frozen client F_k.
        unknown: classes that it has no output for. Its loss is over the others: what stands for these
            (`models.aligned`) would be a floor under it, which a client of all classes does not have.
        generator: the common start theta_G of all of them.
        classes: the target classes j, `[g]`.
        z: the common noise, `[b, nz]`.
        steps: T_G.
    """

    automatic_optimization = False
    replays = False

    classes: Tensor
    unknown: Tensor
    z: Tensor

    def __init__(
        self,
        client: nn.Module,
        generator: ConvGenerator,
        *,
        unknown: tuple[int, ...] = (),
        classes: Tensor,
        z: Tensor,
        steps: int,
        optimizer: OptimizerFactory,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.client = client.requires_grad_(False).eval()
        self.generator, self.optimizer = generator.requires_grad_(False), optimizer
        self.names = [name for name, _ in generator.named_parameters()]
        self.stacked = nn.ParameterList(
            value.detach().expand(len(classes), *value.shape).clone() for _, value in generator.named_parameters()
        )
        self.register_buffer("classes", classes)
        self.register_buffer("unknown", torch.tensor(unknown, dtype=torch.long))
        self.register_buffer("z", z)
        self.losses: list[Tensor] = []

    def train(self, mode: bool = True) -> "StratifyModule":
        """The client is only asked, never trained."""
        super().train(mode)
        self.client.eval()
        return self

    def images(self) -> Tensor:
        """What the generators make of the noise now, `[g, b, C, H, W]`."""
        stacked = dict(zip(self.names, self.stacked, strict=True))
        if len(self.classes) == 1:
            single = {name: value[0] for name, value in stacked.items()}
            return functional_call(self.generator, single, (self.z,)).unsqueeze(0)
        if (dtype := autocast_dtype(self.z.device)) is not None:
            stacked = cast_products(self.generator, stacked, dtype)
        with like_autocast(self.generator, dtype):
            return vmap(lambda params: functional_call(self.generator, params, (self.z,)))(stacked)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """The gradient of the sum over classes is each generator's own, because they share no parameter."""
        optimizer: Any = self.optimizers()

        def step(_: None) -> Tensor:
            losses = self.class_losses()
            minimise(self, losses.sum(), optimizer)
            return losses.detach()

        own = to_capture(self, optimizer, self.modules())
        self.losses += repeated(step, repeat(None, self.steps), optimizer=own)

    def class_losses(self) -> Tensor:
        """Eq. 1 for every class, `[g]`."""
        logits = at_least_float32(self.client(self.images().flatten(0, 1)))
        if len(self.unknown):
            logits = logits.index_fill(1, self.unknown, -torch.inf)
        labels = self.classes.repeat_interleave(len(self.z))
        losses = F.cross_entropy(logits, labels, reduction="none")
        return losses.view(len(self.classes), -1).mean(dim=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimiser for the stack; Adam and SGD work element by element, so it equals one a generator."""
        return self.optimizer(self.stacked.parameters())


@dataclass(frozen=True)
class Guidance:
    """The guidance matrix U `[c, m]` (Eq. 3) with the artifacts it comes from."""

    U: Tensor
    keys: list[str]
    spent: Spent


def stratify(
    uploads: Uploads,
    *,
    spec: DataSpec,
    generator: Recipe[ConvGenerator],
    settings: Stratification,
    context: Context,
) -> Guidance:
    """Algorithm 2 for every client with a classifier; one artifact per client, resumable after every group of classes.

    A client is asked for the classes that it has an output for; its capability for others is 0. Where some client lacks
    a class, nobody's capability for a class of its own is 0: one that no loss moved for is left to those who have it.

    Args:
        generator: of the images, built from `spec`.
    """
    known = known_classes(uploads.classifiers, spec.classes)
    at_once = _classes_at_once(settings.classes_at_once, spec.classes, device_of(context.trainer))
    task = context.progress.task("stratification", int(known.sum()), "client classes")
    start = partial(_start, partial(generator, spec=spec), settings)
    wanted = []
    for upload, own in zip(uploads.classifiers, known, strict=True):
        inputs = {
            "client": upload.key,
            "spec": described(spec),
            "generator": described(generator),
            "settings": described(settings),
        }
        measure = partial(_measure, upload, settings, context.trainer)
        count = partial(_macs_of_class, upload.model, spec, settings)
        make = partial(_column, measure, count, start, own, at_once, task)
        wanted.append(keyed(Wanted("stratify", inputs, make), __name__))
    columns = make_all(wanted, known.sum(dim=1).tolist(), context=context, task=task)
    task.finish()
    U = torch.stack([column.tensors["u"] for column in columns], dim=1)
    if not U.any():
        context.progress.note(
            "stratification: every loss stayed as it was, so all clients count alike; more stratify.steps"
        )
    shared = U if bool(known.all()) else U.clamp_min(LEAST) * known.T
    return Guidance(shared, [column.key for column in columns], Spent.on(columns))


def _macs_of_class(client: nn.Module, spec: DataSpec, settings: Stratification, begun: Start) -> int:
    """Of all steps of one client and class: the generator is trained on what the frozen client answers."""
    generator, z = begun
    image = torch.zeros(1, spec.channels, spec.size, spec.size, device=place_of(client))
    each = TRAINED * of_one(generator, z.to(place_of(generator))) + PASSED * of_one(client, image)
    return settings.steps * settings.batch_size * each


def _classes_at_once(wanted: int | str, classes: int, device: torch.device) -> int:
    if isinstance(wanted, int):
        return wanted
    return 1 if device.type == "cpu" else classes


def _column(
    measure: Callable[[Start, int, Tensor], Counted],
    count: Callable[[Start], int],
    start: Callable[[], Start],
    own: Tensor,
    at_once: int,
    task: Task,
    work: Path,
) -> Artifact:
    """u `[c]` of one client, group by group of its own classes, bool `[c]`."""
    begun = start()
    macs = count(begun)
    groups = own.nonzero().flatten().split(at_once)
    makes = {f"classes-{int(group[0]):04d}.pt": partial(measure, begun, macs, group) for group in groups}
    u, cost = piecewise(makes, work, task)
    return Artifact({"u": torch.zeros(len(own)).masked_scatter(own, u)}, {}, cost=cost)


def _start(build_generator: Callable[[], ConvGenerator], settings: Stratification) -> Start:
    """The weights and the noise that all generators share."""
    rng = torch_generator(settings.seed, "stratify")
    generator = build_generator()
    generator.reset(rng)
    return generator, generator.sample_noise(settings.batch_size, rng)


def _measure(
    upload: ClassifierUpload,
    settings: Stratification,
    trainer_settings: TrainerSettings,
    start: Start,
    macs: int,
    group: Tensor,
) -> Counted:
    """u `[g]` of one client and one group of classes, each of which takes `macs`."""
    generator, z = start
    optimizer = fused(settings.optimizer)
    module = StratifyModule(
        upload.model, generator, unknown=upload.unknown, classes=group, z=z, steps=settings.steps, optimizer=optimizer
    )
    with trainer_of(module, trainer_settings) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    u = guidance_capability(torch.stack(module.losses), min_loss=settings.min_loss).cpu()
    if not bool(torch.isfinite(u).all()):
        raise OneshotError(
            f"stratification diverged: the generator's losses are not finite; lower "
            f"stratify.optimizer.lr={settings.optimizer.settings.get('lr')}"
        )
    return u, macs * len(group)
