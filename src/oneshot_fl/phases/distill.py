"""Phase 3, distillation: the one loop that serves every method.

    student = init(clients)
    for round in range(T_g):
        x, y = source.make(turn)                # T_G generator steps, or proxy images; several sources fill one pool
        pool.add(x, y); ensemble.refit(pool)    # refit: nothing to do unless the method learns weights
        for batch in pool: step(student objective)

One Lightning epoch is one round, so the round is the axis of everything that is logged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat, zip_longest
from typing import Any, NamedTuple, TypeVar, cast

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from oneshot_fl.data.batches import last_joined
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank, Mode
from oneshot_fl.models.mode import frozen
from oneshot_fl.models.optimizers import fused
from oneshot_fl.models.per_architecture import members_of
from oneshot_fl.models.soundness import first_unsound
from oneshot_fl.parts.ensembles import NoTeacher, needs_several
from oneshot_fl.parts.method import Loop, WarmUp, of_source
from oneshot_fl.parts.pools import Entry, joined_apart, refit
from oneshot_fl.parts.received import chance, perturbed, received
from oneshot_fl.parts.slots import Made, Source, Turn
from oneshot_fl.parts.view import View, answered, ask, require_logits, require_no_probabilities, require_rows, taught
from oneshot_fl.phases.diverged import RATE_KEYS, not_finite, rates_of, require_finite, require_finite_parts
from oneshot_fl.phases.replay import is_known, repeated, to_capture
from oneshot_fl.phases.schedule import anneal, factor
from oneshot_fl.phases.trainer import fraction, minimise
from oneshot_fl.seeds import torch_generator
from oneshot_fl.values import BatchSize, BelowOne, Count, CountOrZero, Images, Seed, whole_part

T = TypeVar("T")
G = TypeVar("G")


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
    held_out: BelowOne = 0.0
    """Share of what every source makes that the student is not trained on, so that it can be judged by it."""


class Lesson(NamedTuple):
    """What one step of the student is given."""

    entry: Entry
    drawn: Tensor | None
    """What chance decides about how its images are perturbed."""
    times: Tensor | float | None
    """What the learning rate is multiplied by, where it moves with every step."""


class DistillModule(LightningModule):
    """The server's loop over generation and distillation; `training_step` is one round."""

    automatic_optimization = False
    replays = False

    def __init__(
        self,
        student: nn.Module,
        bank: ClientBank,
        loop: Loop,
        *,
        spec: DataSpec,
        settings: Distillation,
        rate_keys: Mapping[str, str] = RATE_KEYS,
    ) -> None:
        super().__init__()
        self.student, self.bank, self.spec = student, bank, spec
        self.ensemble, self.pool, self.perturb = loop.ensemble, loop.pool, loop.perturb
        self.sources = nn.ModuleList(loop.sources.values())  # type: ignore[arg-type]  # every source is a module
        self.names = list(loop.sources)
        self.objectives = {"generator": loop.objective, "student": loop.student}
        if loop.warm_up is not None:
            self.objectives["warm_up"] = loop.warm_up.objective
        began = members_of(student) if "start" in loop.student.needs else []
        self.starts = nn.ModuleList(ClientBank([deepcopy(member)]) for member in began)
        self.settings, self.schedule, self.warm_up = settings, loop.schedule, loop.warm_up
        self.factories, self.rate_keys = loop.optimizers, rate_keys
        self.rng = torch_generator(settings.seed, "distill")
        for source in loop.sources.values():
            source.begin(self.rng)
        self.history: list[dict[str, Any]] = []
        self.held: Tensor | None = None
        self.accuracy = MulticlassAccuracy(num_classes=spec.classes, average="micro")
        self._answers_finite: list[Tensor] = []
        self._terms: dict[str, list[dict[str, Tensor]]] = {who: [] for who in self.objectives}

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Those of the sources and the student, in the order of `factories`."""
        sources = {of_source(name): source for name, source in zip(self.names, self.sources, strict=True)}
        trained: dict[str, Any] = {**sources, "student": self.student, "warm_up": self.student}
        return [fused(factory)(trained[who].parameters()) for who, factory in self.factories.items()]

    def _optimizer(self, who: str) -> Any:
        """None for a source that has nothing to train."""
        return self._by_name().get(who)

    def _by_name(self) -> dict[str, Any]:
        """The optimisers by what they train."""
        found: Any = self.optimizers()  # Lightning hands over a list only where there are several
        return dict(zip(self.factories, found if isinstance(found, list) else [found], strict=True))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One round: make a batch of images, add it to the pool, train the student on one pass over the pool."""
        if not self.pool.closed:
            self.pool.add(joined_apart(self._entry(made) for made in self._generate_all()))
        if self.warm_up is not None and not self.history:
            self._warm_up(self.warm_up)
        refit(self.ensemble, self.pool, self.settings.batch_size, self.rng)
        self._one_pass(self._optimizer("student"))

    def _one_pass(self, optimizer: LightningOptimizer) -> None:
        """Train the student on everything in the pool once."""
        anneal(optimizer, self._factor(0.0))
        moves = self.schedule == "one_cycle"
        called = [] if self.perturb is None else [self.perturb]
        own = self._to_capture("student", optimizer, called, rate_moves=moves)

        def step(lesson: Lesson) -> None:
            if lesson.times is not None:
                anneal(optimizer, lesson.times)
            minimise(self, self._student_loss(lesson.entry, lesson.drawn), optimizer)

        for _ in self._repeated("student", step, self._lessons(moves=moves, on_device=own is not None), own):
            pass
        anneal(optimizer, self._factor(1.0))  # a number again, where steps read it from the device

    def _lessons(self, *, moves: bool, on_device: bool) -> Iterator[Lesson]:
        """Those of one pass over the pool; each carries what the learning rate is multiplied by, where that moves."""
        seen, size = 0, self.settings.batch_size
        for entry in self.pool.batches(size, self.rng):
            count = len(entry.y)
            times = self._factor(seen / self.pool.size) if moves else None
            drawn = None if self.perturb is None else chance(self.perturb.draw(count, self.rng)).to(entry.x.device)
            rate = torch.full((), times, device=self.device) if times is not None and on_device else times
            yield Lesson(entry, drawn, rate)
            seen += min(count, size)  # a batch of one image holds it twice

    def _factor(self, within: float) -> float:
        """What the learning rate is multiplied by at a share of the present round."""
        return factor(self.schedule, rounds_done=len(self.history), within=within, rounds=self.settings.rounds)

    def _warm_up(self, warm_up: WarmUp) -> None:
        """The student learns from the clients' mean logits; what it is then is what it began as."""
        size, optimizer = self.settings.batch_size, self._optimizer("warm_up")
        with torch.no_grad():
            taught = self.pool.with_answers(lambda x: self.bank.plain_mean(self.bank(x).logits), size)
        for _ in range(warm_up.passes):
            for entry in taught.batches(size, self.rng):
                minimise(self, self._score("warm_up", *entry[:2], entry.trust, entry.answers), optimizer)
        for start, member in zip(cast(list[ClientBank], self.starts), members_of(self.student), strict=False):
            start.models[0].load_state_dict(member.state_dict())

    def _generate_all(self) -> list[Made]:
        """What every source makes for the student, each with that of those before it at hand; some may make none."""
        made: list[Made] = []
        rng = torch_generator(self.settings.seed, "held out")  # places, as some sources make the same in every round
        for name, source in zip(self.names, self.sources, strict=True):
            new = self._generate(name, cast(Source, source), tuple(each.x for each in made))
            made += [self._without_held_out(new, rng)] if len(new.x) else []
        if not made:
            raise OneshotError(
                f"method.source: no source makes an image in round {len(self.history) + 1}; choose one that does, of "
                "images of these channels too"
            )
        return made

    def _without_held_out(self, made: Made, rng: torch.Generator) -> Made:
        """What of a source's images the student is trained on; of the rest the newest `images` are kept."""
        count = whole_part(self.settings.held_out, len(made.x))
        if count == 0:
            return made
        order = torch.randperm(len(made.x), generator=rng).to(made.x.device)
        held, rest = made.x[order[:count]], order[count:].sort().values
        both = held if self.held is None else torch.cat([self.held, held])
        self.held = both[-self.settings.images :]
        return Made(made.x[rest], *(column if column is None else column[rest] for column in made[1:]))

    def _generate(self, name: str, source: Source, before: tuple[Tensor, ...]) -> Made:
        optimizer = self._optimizer(of_source(name))
        if source.reset and optimizer is not None:
            optimizer.optimizer.state.clear()
        with frozen(self.student):
            turn = Turn(
                lambda x, y, teacher=None: self._score("generator", x, y, teacher=teacher),
                lambda loss: minimise(self, loss, optimizer),
                self._taught,
                self.rng,
                before,
                partial(self._again, optimizer),
            )
            made = source.make(turn)
        key = f"method.source.{name}" if len(self.names) > 1 else "method.source"
        found = received(made, spec=self.spec, key=key, finite=optimizer is None).to(self.device)
        if found.y is None and len(found.x) and not len(self.bank.models):
            raise OneshotError(f"{key}: makes images without labels, and there is no classifier that could name them")
        return found

    def _again(self, optimizer: LightningOptimizer, step: Callable[[], T], times: int) -> Iterator[T]:
        """What a source's steps return."""
        own = self._to_capture("generator", optimizer)
        return self._repeated("generator", lambda _: step(), repeat(None, times), own)

    def _to_capture(
        self, who: str, optimizer: LightningOptimizer, others: Iterable[Any] = (), *, rate_moves: bool = False
    ) -> torch.optim.Optimizer | None:
        """The optimiser whose steps may be captured; `others` are called in them too."""
        parts = chain(self.objectives[who].terms.values(), others, self.modules())
        return to_capture(self, optimizer, parts, rate_moves=rate_moves)

    def _repeated(
        self, who: str, step: Callable[[G], T], given: Iterable[G], own: torch.optim.Optimizer | None
    ) -> Iterator[T]:
        """What steps return, with every step's terms kept: a replayed step keeps none itself."""
        terms = self._terms[who]

        def noted(given: G) -> tuple[T, list[dict[str, Tensor]]]:
            before = len(terms)
            result, new = step(given), terms[before:]
            del terms[before:]
            return result, new

        for result, new in repeated(noted, given, optimizer=own):
            terms += new
            yield result

    @torch.no_grad()
    def _entry(self, made: Made) -> Entry:
        """Images with what the ensemble remembers of its answers; where no label is known, the clients' joint guess."""
        packed, (y, trust) = self.pool.pack(made.x), made.labelled()
        if isinstance(self.ensemble, NoTeacher) and made.y is not None:
            return Entry(packed, y, packed.new_empty(len(y), 0), trust)
        parts = zip(self._asked_together(self.pool.unpack(packed)), self._asked_together(y), strict=True)
        votes = [ask(self.bank, *part, self.ensemble.needs) for part in parts]
        if made.y is None:
            votes = [each._replace(y=self.bank.plain_mean(each.P).argmax(dim=1)) for each in votes]
        kept = [require_rows(answered(self.ensemble.remember, each), images=len(each.y)) for each in votes]
        return Entry(packed, torch.cat([each.y for each in votes]), torch.cat(kept), trust)

    def _asked_together(self, column: Tensor) -> list[Tensor]:
        """Images or labels in batches, such as the ensemble can be asked with."""
        parts = list(column.split(self.settings.batch_size))
        return last_joined(parts) if needs_several(self.ensemble) else parts

    def _student_loss(self, entry: Entry, drawn: Tensor | None) -> Tensor:
        x = entry.x
        if self.perturb is not None and drawn is not None:
            x = perturbed(self.perturb, x, partial(self._taught, y=entry.y), drawn, finite=not is_known(self.perturb))
        with torch.no_grad():
            kept = self.perturb is None or getattr(self.perturb, "keeps_answers", False)
            teacher = self._recalled(entry) if kept else self._taught(x, entry.y)
        if not self.history:
            require_no_probabilities(self.ensemble, teacher)
        return self._score("student", x, entry.y, entry.trust, teacher)

    def _recalled(self, entry: Entry) -> Tensor:
        """The ensemble's logits on images of the pool."""
        answer = self.ensemble.recall(entry)
        if isinstance(self.ensemble, NoTeacher):
            return answer
        return require_logits(answer, images=len(entry.y), classes=self.spec.classes)

    def _taught(self, x: Tensor, y: Tensor) -> Tensor:
        """The ensemble's logits on images that the pool does not hold."""
        return taught(self.ensemble, ask(self.bank, x, y, self.ensemble.needs))

    def _score(
        self, who: str, x: Tensor, y: Tensor, trust: Tensor | None = None, teacher: Tensor | None = None
    ) -> Tensor:
        """An objective's value; where several student models vote, the sum of theirs."""
        objective = self.objectives[who]
        totals = []
        for student, start in self._students(who):
            view = View(
                x,
                y,
                student=student,
                bank=self.bank,
                ensemble=self.ensemble,
                needs=objective.needs,
                trust=trust,
                teacher=teacher,
                start=start,
            )
            total, values = objective(view)
            totals.append(total)
            self._terms[who].append(values)
        return torch.stack(totals).sum()

    def _students(self, who: str) -> list[tuple[nn.Module, ClientBank | None]]:
        """The student models that an objective scores, each with what it began as where a term asks for it."""
        if who == "generator":
            return [(self.student, None)]
        return list(zip_longest(members_of(self.student), cast(list[ClientBank], self.starts)))

    def validation_step(self, batch: tuple[Tensor, Tensor | None], batch_idx: int) -> None:
        """Test accuracy of the student after the round; reported, never used to choose anything."""
        logits = self.student(batch[0])
        if batch[1] is not None:
            self.accuracy.update(logits, batch[1])
        self._answers_finite.append(torch.isfinite(logits).all())

    def on_validation_epoch_end(self) -> None:
        """Close the round's row of the history; only here, and for new images' labels, a round waits for the device."""
        tested = fraction(self.accuracy) if self.accuracy.update_called else None
        row: dict[str, Any] = {"round": len(self.history) + 1, "accuracy": tested}
        self.accuracy.reset()
        first = {who: values[0] if values else {} for who, values in self._terms.items()}
        for who, values in self._terms.items():
            row[who] = {name: float(torch.stack([value[name] for value in values]).mean()) for name in first[who]}
            values.clear()
        student = self._bad_student()
        if not_finite(row, student):
            require_finite_parts(self, {} if self.history else first)
        require_finite(row, student=student, rates=rates_of(self._by_name()), rate_keys=self.rate_keys)
        self.history.append(row)

    def _bad_student(self) -> list[str]:
        """What the last step of a round left, which no loss of the round has seen."""
        answers = bool(torch.stack(self._answers_finite).all())
        self._answers_finite.clear()
        tensor = first_unsound(self.student)
        return [*([f"student's {tensor}"] if tensor else []), *([] if answers else ["student's answers"])]
