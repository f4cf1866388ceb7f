"""Phase 3, distillation: the one loop that serves every method.

    student = init(clients)
    for round in range(T_g):
        x, y = source.make(objective)           # T_G generator steps, or proxy images; several sources fill one pool
        pool.add(x, y); ensemble.refit(pool)    # refit: nothing to do unless the method learns weights
        for batch in pool: step(student objective)

One Lightning epoch is one round, so the round is the axis of everything that is logged.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank, Mode
from oneshot_fl.models.optimizers import OptimizerFactory, fused
from oneshot_fl.models.per_architecture import members_of
from oneshot_fl.parts.ensembles import NoTeacher
from oneshot_fl.parts.pools import Entry
from oneshot_fl.parts.slots import Loop, Source, WarmUp
from oneshot_fl.parts.view import View
from oneshot_fl.phases.soundness import first_unsound
from oneshot_fl.phases.trainer import fraction, minimise
from oneshot_fl.seeds import torch_generator
from oneshot_fl.values import BatchSize, Count, CountOrZero, Images, Seed


@dataclass(frozen=True)
class Distillation:
    """The settings of this phase."""

    rounds: CountOrZero
    """T_g"""
    batch_size: BatchSize
    bank: Mode
    """How the m clients run."""
    clients_at_once: Count | None
    images: Images
    """Synthetic images kept with the result."""
    seed: Seed


class DistillModule(LightningModule):
    """The server's loop over generation and distillation; `training_step` is one round."""

    automatic_optimization = False

    def __init__(
        self, student: nn.Module, bank: ClientBank, loop: Loop, *, classes: int, settings: Distillation
    ) -> None:
        super().__init__()
        self.student, self.bank = student, bank
        self.ensemble, self.pool, self.perturb = loop.ensemble, loop.pool, loop.perturb
        self.sources = nn.ModuleDict(loop.sources)  # type: ignore[arg-type]  # every source is a module
        self.objectives = {"generator": loop.objective, "student": loop.student}
        if loop.warm_up is not None:
            self.objectives["warm_up"] = loop.warm_up.objective
        self.start = ClientBank([deepcopy(student)]) if "start" in loop.student.needs else None
        self.settings, self.schedule, self.warm_up = settings, loop.schedule, loop.warm_up
        self.factories = _factories(loop)
        self.rng = torch_generator(settings.seed, "distill")
        for source in loop.sources.values():
            source.begin(self.rng)
        self.history: list[dict[str, Any]] = []
        self.accuracy = MulticlassAccuracy(num_classes=classes, average="micro")
        self._answers_finite: list[Tensor] = []
        self._terms: dict[str, list[dict[str, Tensor]]] = {who: [] for who in self.objectives}

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Those of the sources and the student, in the order of `factories`."""
        sources = {_of_source(name): source for name, source in self.sources.items()}
        trained: dict[str, Any] = {**sources, "student": self.student, "warm_up": self.student}
        return [fused(factory)(trained[who].parameters()) for who, factory in self.factories.items()]

    def _optimizer(self, who: str) -> Any:
        """None for a source that has nothing to train."""
        found: Any = self.optimizers()  # Lightning hands over a list only where there are several
        return dict(zip(self.factories, found if isinstance(found, list) else [found], strict=True)).get(who)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One round: make a batch of images, add it to the pool, train the student on one pass over the pool."""
        if not self.pool.closed:
            self.pool.add(joined([self._entry(*self._generate(name)) for name in self.sources]))
        if self.warm_up is not None and not self.history:
            self._warm_up(self.warm_up)
        self.ensemble.refit(self.pool, self.settings.batch_size, self.rng)
        optimizer = self._optimizer("student")
        if self.schedule == "cosine":
            anneal(optimizer, len(self.history) / self.settings.rounds)
        for entry in self.pool.batches(self.settings.batch_size, self.rng):
            minimise(self, self._student_loss(entry), optimizer)

    def _warm_up(self, warm_up: WarmUp) -> None:
        """The student learns from the clients' mean logits; what it is then is what it began as."""
        size, optimizer = self.settings.batch_size, self._optimizer("warm_up")
        with torch.no_grad():
            taught = self.pool.with_answers(lambda x: self.bank(x).logits.mean(dim=0), size)
        for _ in range(warm_up.passes):
            for entry in taught.batches(size, self.rng):
                minimise(self, self._score("warm_up", entry.x, entry.y, entry.answers), optimizer)
        if self.start is not None:
            self.start.models[0].load_state_dict(self.student.state_dict())

    def _generate(self, name: str) -> tuple[Tensor, Tensor | None]:
        source, optimizer = cast(Source, self.sources[name]), self._optimizer(_of_source(name))
        if source.reset and optimizer is not None:
            optimizer.optimizer.state.clear()
        with frozen(self.student):
            return source.make(
                lambda x, y: self._score("generator", x, y),
                lambda loss: minimise(self, loss, optimizer),
                self.rng,
            )

    @torch.no_grad()
    def _entry(self, x: Tensor, y: Tensor | None) -> Entry:
        """Images with what the ensemble remembers of its answers; where no label is known, the clients' joint guess."""
        packed = self.pool.pack(x)
        x = self.pool.unpack(packed)
        if isinstance(self.ensemble, NoTeacher) and y is not None:
            return Entry(packed, y, self.ensemble.remember(x, y))
        size = self.settings.batch_size
        answers = [self.bank(part).logits for part in x.split(size)]
        if y is None:
            y = torch.cat([P.mean(dim=0).argmax(dim=1) for P in answers])
        kept = [self.ensemble.remember(P, labels) for P, labels in zip(answers, y.split(size), strict=True)]
        return Entry(packed, y, torch.cat(kept))

    def _student_loss(self, entry: Entry) -> Tensor:
        if self.perturb is None:
            return self._score("student", entry.x, entry.y, self.ensemble.recall(entry.answers))
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
        logits = self.student(batch[0])
        self.accuracy.update(logits, batch[1])
        self._answers_finite.append(torch.isfinite(logits).all())

    def on_validation_epoch_end(self) -> None:
        """Close the round's row of the history; only here a round waits for the device."""
        row: dict[str, Any] = {"round": len(self.history) + 1, "accuracy": fraction(self.accuracy)}
        self.accuracy.reset()
        for who, values in self._terms.items():
            names = values[0] if values else ()
            row[who] = {name: float(torch.stack([value[name] for value in values]).mean()) for name in names}
            values.clear()
        self._require_finite(row)
        self.history.append(row)

    def _require_finite(self, row: Mapping[str, Any]) -> None:
        """A model that diverged is reported at once, and neither trained on nor stored."""
        bad = [*self._bad_terms(row), *self._bad_student()]
        if not bad:
            return
        rates = ", ".join(f"{who} {lr}" for who, lr in self._learning_rates().items())
        raise OneshotError(
            f"server: diverged in round {row['round']} (not finite: {', '.join(bad)}); lower a learning rate of the "
            f"server ({rates}): distill.student_optimizer.lr or distill.generator_optimizer.lr, or "
            "method.student_optimizer.lr where the method has one of its own"
        )

    def _bad_terms(self, row: Mapping[str, Any]) -> list[str]:
        return [
            f"{who} {name}" for who in self.objectives for name, value in row[who].items() if not math.isfinite(value)
        ]

    def _bad_student(self) -> list[str]:
        """What the last step of a round left, which no loss of the round has seen."""
        answers = bool(torch.stack(self._answers_finite).all())
        self._answers_finite.clear()
        tensor = first_unsound(self.student)
        return [*([f"student's {tensor}"] if tensor else []), *([] if answers else ["student's answers"])]

    def _learning_rates(self) -> dict[str, float]:
        found: Any = self.optimizers()
        optimizers = found if isinstance(found, list) else [found]
        return {who: each.param_groups[0]["lr"] for who, each in zip(self.factories, optimizers, strict=True)}


def _of_source(name: str) -> str:
    """What a source's optimiser is called."""
    return f"source {name}"


def _factories(loop: Loop) -> dict[str, OptimizerFactory]:
    """Optimisers by what they train."""
    sources = {_of_source(name): source.optimizer for name, source in loop.sources.items() if source.optimizer}
    return {**sources, "student": loop.optimizer, **({"warm_up": loop.warm_up.optimizer} if loop.warm_up else {})}


def joined(entries: list[Entry]) -> Entry:
    """What several sources made in one round as one batch."""
    return entries[0] if len(entries) == 1 else Entry(*(torch.cat(column) for column in zip(*entries, strict=True)))


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
