"""Phase 3, distillation: the one loop that serves every method.

    student = init(clients)
    for round in range(T_g):
        x, y = source.make(objective)           # T_G generator steps, or proxy images
        pool.add(x, y); ensemble.refit(pool)    # refit: nothing to do unless the method learns weights
        for batch in pool: step(student objective)

One Lightning epoch is one round, so the round is the axis of everything that is logged.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset, DataSpec
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.per_architecture import members_of, together
from oneshot_fl.parts.ensembles import NoTeacher
from oneshot_fl.parts.pools import Entry
from oneshot_fl.parts.slots import Loop, Method, WarmUp
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.parts.view import View
from oneshot_fl.phases.checkpoint import RoundCheckpoint
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.trainer import EpochEnd, fraction, minimise, trainer_of
from oneshot_fl.seeds import seeded, torch_generator
from oneshot_fl.store import Artifact, load_model

REVISION = 7  # raise it when a change here makes other numbers from the same configuration


class DistillModule(LightningModule):
    """The server's loop over generation and distillation; `training_step` is one round.

    Args:
        settings: `batch_size`, `rounds`, `seed`.
    """

    automatic_optimization = False

    def __init__(
        self,
        student: nn.Module,
        bank: ClientBank,
        loop: Loop,
        *,
        classes: int,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.student, self.bank = student, bank
        self.ensemble, self.source, self.pool, self.perturb = loop.ensemble, loop.source, loop.pool, loop.perturb
        self.objectives = {"generator": loop.objective, "student": loop.student}
        if loop.warm_up is not None:
            self.objectives["warm_up"] = loop.warm_up.objective
        self.start = ClientBank([deepcopy(student)]) if "start" in loop.student.needs else None
        self.settings, self.factories, self.schedule = settings, loop.optimizers, loop.schedule
        self.warm_up = loop.warm_up
        self.rng = torch_generator(settings["seed"], "distill")
        self.source.begin(self.rng)
        self.history: list[dict[str, Any]] = []
        self.accuracy = MulticlassAccuracy(num_classes=classes, average="micro")
        self._terms: dict[str, list[dict[str, Tensor]]] = {who: [] for who in self.objectives}

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Those of the source and the student, in the order of `factories`."""
        trained: dict[str, Any] = {"source": self.source, "student": self.student, "warm_up": self.student}
        return [factory(trained[who].parameters()) for who, factory in self.factories.items()]

    def _optimizer(self, who: str) -> Any:
        """None for a source that has nothing to train."""
        found: Any = self.optimizers()  # Lightning hands over a list only where there are several
        return dict(zip(self.factories, found if isinstance(found, list) else [found], strict=True)).get(who)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One round: make a batch of images, add it to the pool, train the student on one pass over the pool."""
        if not self.pool.closed:
            self.pool.add(self._entry(*self._generate()))
        if self.warm_up is not None and not self.history:
            self._warm_up(self.warm_up)
        self.ensemble.refit(self.pool, self.settings["batch_size"], self.rng)
        optimizer = self._optimizer("student")
        if self.schedule == "cosine":
            anneal(optimizer, len(self.history) / self.settings["rounds"])
        for entry in self.pool.batches(self.settings["batch_size"], self.rng):
            minimise(self, self._student_loss(entry), optimizer)

    def _warm_up(self, warm_up: WarmUp) -> None:
        """The student learns from the clients' mean logits; what it is then is what it began as."""
        size, optimizer = self.settings["batch_size"], self._optimizer("warm_up")
        with torch.no_grad():
            taught = self.pool.with_answers(lambda x: self.bank(x).logits.mean(dim=0), size)
        for _ in range(warm_up.passes):
            for entry in taught.batches(size, self.rng):
                minimise(self, self._score("warm_up", entry.x, entry.y, entry.kept), optimizer)
        if self.start is not None:
            self.start.models[0].load_state_dict(self.student.state_dict())

    def _generate(self) -> tuple[Tensor, Tensor | None]:
        optimizer = self._optimizer("source")
        if self.source.reset:
            optimizer.optimizer.state.clear()
        with frozen(self.student):
            return self.source.make(
                lambda x, y: self._score("generator", x, y),
                lambda loss: minimise(self, loss, optimizer),
                self.rng,
            )

    @torch.no_grad()
    def _entry(self, x: Tensor, y: Tensor | None) -> Entry:
        """Images with what the ensemble keeps of its answers; where no label is known, the clients' joint guess."""
        packed = self.pool.pack(x)
        x = self.pool.unpack(packed)
        if isinstance(self.ensemble, NoTeacher) and y is not None:
            return Entry(packed, y, self.ensemble.keep(x, y))
        size = self.settings["batch_size"]
        answers = [self.bank(part).logits for part in x.split(size)]
        if y is None:
            y = torch.cat([P.mean(dim=0).argmax(dim=1) for P in answers])
        kept = [self.ensemble.keep(P, labels) for P, labels in zip(answers, y.split(size), strict=True)]
        return Entry(packed, y, torch.cat(kept))

    def _student_loss(self, entry: Entry) -> Tensor:
        if self.perturb is None:
            return self._score("student", entry.x, entry.y, self.ensemble.recall(entry.kept))
        hard = self.perturb(entry.x, lambda x: self.ensemble(self.bank(x).logits, entry.y), self.rng)
        with torch.no_grad():
            teacher = self.ensemble(self.bank(hard).logits, entry.y)
        return self._score("student", hard, entry.y, teacher)

    def _score(self, who: str, x: Tensor, y: Tensor, teacher: Tensor | None = None) -> Tensor:
        """An objective's value; one that the student is trained on is the sum over the models that vote in it."""
        objective = self.objectives[who]
        students = [self.student] if who == "generator" else members_of(self.student)
        totals = []
        for student in students:
            view = View(
                x,
                y,
                student=student,
                bank=self.bank,
                ensemble=self.ensemble,
                needs=objective.needs,
                teacher=teacher,
                start=self.start,
            )
            total, values = objective(view)
            totals.append(total)
            self._terms[who].append(values)
        return torch.stack(totals).sum()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Test accuracy of the student after the round; reported, never used to choose anything."""
        self.accuracy.update(self.student(batch[0]), batch[1])

    def on_validation_epoch_end(self) -> None:
        """Close the round's row of the history; the only wait for the device in a round."""
        row: dict[str, Any] = {"round": len(self.history) + 1, "accuracy": fraction(self.accuracy)}
        self.accuracy.reset()
        for who, values in self._terms.items():
            names = values[0] if values else ()
            row[who] = {name: float(torch.stack([value[name] for value in values]).mean()) for name in names}
            values.clear()
        self.history.append(row)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without weight gradients inside the block; training mode with them after it."""
    model.eval().requires_grad_(False)
    try:
        yield
    finally:
        model.train().requires_grad_(True)


def anneal(optimizer: LightningOptimizer, share: float) -> None:
    """Half a cosine from the learning rate that the optimiser began with (`share` 0) to zero (`share` 1)."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class Server:
    """The global model and how it came about."""

    model: nn.Module
    history: list[dict[str, Any]]
    pool_bytes: int
    """What the pool held after the last round."""
    ensemble: dict[str, Tensor]
    """What the method's ensemble learned, as a state dict; empty without a loop."""
    images: Tensor | None
    """Some of the newest images, uint8 `[n, C, H, W]`, evenly over the classes, sorted by label; None: no loop."""
    labels: Tensor | None
    key: str
    seconds: float


def distill(
    data: Dataset,
    test: ImageBatches,
    uploads: Uploads,
    method: Method,
    *,
    student: Callable[[], nn.Module],
    inputs: Mapping[str, Any],
    settings: Mapping[str, Any],
    context: Context,
) -> Server:
    """Turn the uploads into the global model; one artifact, resumable after every round.

    Args:
        test: the test set, for the accuracy after every round.
        student: builds the student with its initial weights.
        inputs: everything besides `settings` and the data that the result depends on; enters the key.
        settings: `rounds` (T_g), `batch_size`, `bank`, `clients_at_once`, `images`, `seed`.
    """
    rounds = settings["rounds"] if method.loop else 0
    report = _RoundReport(context, rounds)

    def make(work: Path) -> Artifact:
        model = together([method.init(member, uploads) for member in members_of(student())])
        if method.loop is None or rounds == 0:
            return Artifact(_prefixed("student", model.state_dict()), {"history": [], "pool_bytes": 0})
        bank = ClientBank(uploads.models, mode=settings["bank"], at_once=settings["clients_at_once"])
        module = DistillModule(model, bank, method.loop, classes=data.spec.classes, settings=settings)
        seconds = _fit(module, test, rounds, RoundCheckpoint(work), report, context)
        tensors = {
            **_prefixed("student", module.student.state_dict()),
            **_prefixed("ensemble", module.ensemble.state_dict()),
            **_prefixed("synthetic", _newest_images(module, data.spec)),
        }
        return Artifact(tensors, {"history": module.history, "pool_bytes": module.pool.bytes}, seconds=seconds)

    key = {"revision": REVISION, "data": data.fingerprint, "settings": dict(settings), **inputs}
    artifact = context.store.get_or_make("distill", key, make)
    state, ensemble, synthetic = (_only(name, artifact.tensors) for name in ("student", "ensemble", "synthetic"))
    model = load_model(student(), state, f"server ({context.store.root}/distill/{artifact.key})")
    report(artifact.facts["history"])
    report.task.finish()
    return Server(
        model,
        artifact.facts["history"],
        artifact.facts["pool_bytes"],
        ensemble,
        synthetic.get("images"),
        synthetic.get("labels"),
        artifact.key,
        artifact.seconds,
    )


def _prefixed(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{key}": tensor for key, tensor in tensors.items()}


def _only(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one prefix, without it."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _fit(
    module: DistillModule,
    test: ImageBatches,
    rounds: int,
    checkpoint: RoundCheckpoint,
    report: "_RoundReport",
    context: Context,
) -> float:
    """Run the rounds that are left; the seconds that earlier processes spent on the others."""
    left = rounds - checkpoint.rounds_done
    if left == 0:  # killed between the last round and the storing of the result
        checkpoint.restore(module, [])
    else:
        callbacks = [checkpoint, EpochEnd(lambda module: report(module.history))]
        with (
            trainer_of(module, context.trainer, epochs=left, callbacks=callbacks) as trainer,
            seeded(module.settings["seed"], "distillation"),
        ):
            trainer.fit(module, train_dataloaders=range(1), val_dataloaders=test)
    return checkpoint.seconds_before


class _RoundReport:
    """Log every round of a history once, whether it was run now, resumed or loaded."""

    def __init__(self, context: Context, rounds: int) -> None:
        self.log, self.seen = context.log, 0
        self.task = context.progress.task("distillation", rounds, "rounds")

    def __call__(self, history: list[dict[str, Any]]) -> None:
        for row in history[self.seen :]:
            metrics = {"distill/accuracy": row["accuracy"]}
            terms = {who: values for who, values in row.items() if isinstance(values, dict)}
            for who, values in terms.items():
                metrics |= {f"distill/{who}_{name}": value for name, value in values.items()}
            self.log.log(metrics, row["round"])
            self.task.reach(row["round"], f"accuracy {row['accuracy']:.3f}")
        self.seen = len(history)


def _newest_images(module: DistillModule, spec: DataSpec) -> dict[str, Tensor]:
    """As many of the pool's newest images as the settings want kept, as bytes, and their labels."""
    x, y = module.pool.newest(module.settings["images"])
    return {"images": spec.to_bytes(x), "labels": y}
