"""What a method is made of: every slot's protocol, the recipes of a method, and the loop that they become."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.parts.ensembles import NoTeacher
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.uploads import Recital, Server, Uploads
from oneshot_fl.parts.view import View, Votes, in_words
from oneshot_fl.recipe import Recipe, made_of_ours, needs_of, needs_of_start
from oneshot_fl.seeds import seeded

Minimise = Callable[[Tensor], None]
"""One optimiser step on a loss."""
Teacher = Callable[[Tensor], Tensor]
"""Images `[b, C, H, W]` -> the ensemble's logits `[b, c]`."""
LabelledTeacher = Callable[[Tensor, Tensor], Tensor]
"""Images `[b, C, H, W]` and the labels `[b]` that they are made for -> the ensemble's logits `[b, c]`."""
Schedule = Literal["constant", "cosine", "steps", "one_cycle"]
UploadStep = Callable[[Uploads], Uploads]
"""An attack or a gate: what it leaves of the uploads; made with the `DataSpec` of the images where it takes `spec`."""
Hearing = Callable[[Uploads, tuple[Recital, ...]], Uploads]
"""What is left of the uploads after the recitals of all classifiers were heard; made as an `UploadStep` is.

What it has to say besides, as why it judges nobody, it notes (`Uploads.noted`).
"""
Step = TypeVar("Step", bound=Callable[..., Uploads])


T = TypeVar("T")


class Repeated(Protocol):
    """The same step again and again."""

    def __call__(self, step: Callable[[], T], times: int) -> Iterator[T]:
        """What each of them returns, in their order."""


def _again(step: Callable[[], T], times: int) -> Iterator[T]:
    return (step() for _ in range(times))


class Score(Protocol):
    """The generator's loss."""

    def __call__(self, x: Tensor, y: Tensor, teacher: Tensor | None = None) -> Tensor:
        """Images and target labels -> a scalar; the ensemble is not asked again where its logits are handed over."""


class Made(NamedTuple):
    """What a source makes in one round."""

    x: Tensor
    """Images `[n, C, H, W]` as models see them, detached."""
    y: Tensor | None
    """The labels `[n]` that they were made for; None: nothing is known of them."""
    trust: Tensor | None = None
    """How far each image shows its label, `[n]`; None: wholly, and where there are no labels not at all."""

    def to(self, device: torch.device) -> "Made":
        """The same on `device`."""
        y, trust = (tensor if tensor is None else tensor.to(device) for tensor in self[1:])
        return Made(self.x.to(device), y, trust)

    def labelled(self) -> tuple[Tensor, Tensor]:
        """Labels (0 for the time being where none is known) and how far they are trusted, both `[n]`."""
        if self.y is None:
            known, y = 0.0, torch.zeros(len(self.x), dtype=torch.long, device=self.x.device)
        else:
            known, y = 1.0, self.y
        return y, torch.full((len(y),), known, device=y.device) if self.trust is None else self.trust


@dataclass(frozen=True)
class Turn:
    """What a source may use when a round asks it for images."""

    score: Score
    minimise: Minimise
    teacher: LabelledTeacher
    rng: torch.Generator
    """The only thing to draw from."""
    made: tuple[Tensor, ...] = ()
    """The images of the sources before it, in the same round."""
    repeated: Repeated = _again
    """Calls a step so many times and yields what it returns, which is tensors.

    The step draws nothing and does the same each time: on a GPU it may be recorded and replayed.
    """


class Init(Protocol):
    """How the student begins; made with the server."""

    needs: ClassVar[frozenset[str]]

    def __call__(self, student: nn.Module) -> nn.Module:
        """The student as it was built -> as it begins."""


class Term(Protocol):
    """A loss term; one with weight 0 is never computed. The only part that is made without the server."""

    weight: float
    needs: ClassVar[frozenset[str]]
    """Of the view: `teacher`, `statistics`, `features`, `start`; a user's own may leave it out and need nothing."""

    def __call__(self, view: View) -> Tensor:
        """A scalar, before weighting."""


class Ensemble(Protocol):
    """How m clients speak with one voice; an `nn.Module`, made with the server."""

    needs: ClassVar[frozenset[str]]
    """Of the server; besides, where it looks at them, `features` and `labels` (those that images were made for)."""

    def __call__(self, votes: Votes) -> Tensor:
        """What the clients say of a batch -> teacher logits `[b, c]`."""

    def remember(self, votes: Votes) -> Tensor:
        """What the pool keeps of that, `[b, ...]`."""

    def recall(self, entry: Entry) -> Tensor:
        """The teacher's logits `[b, c]` on a batch of the pool, from what was kept."""

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """Learn from the pool, once a round."""

    def state_dict(self) -> dict[str, Tensor]:
        """What it has learned."""


class Source(Protocol):
    """Where images come from; an `nn.Module`, made with the server, because the loop saves its state."""

    needs: ClassVar[frozenset[str]]
    optimizer: OptimizerFactory | None
    """Of its parameters; None where there is nothing to train."""
    reset: bool
    """Whether the optimiser forgets what it knows when a round begins; a source that wants new weights then draws them.

    A source may say three things more before it is made: `unlabelled = True`, that it never knows its images' labels,
    so that classifiers have to name them; `scored = True`, that the method's objective is what it is trained by; and in
    `counted_by` which of its settings says how many it makes at most.
    """

    def begin(self, rng: torch.Generator) -> None:
        """Draw what the first round begins with."""

    def make(self, turn: Turn) -> Made:
        """One round's images."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """What `minimise` steps."""

    def state_dict(self) -> dict[str, Tensor]:
        """What a later round depends on."""


class Perturb(Protocol):
    """Images `[b, C, H, W]` -> other images of the same shape, detached.

    The teacher is asked anew about them, unless the class says `keeps_answers = True`: then the student is told what
    was answered about the images as they were.
    """

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        """What chance decides about so many images, drawn from `rng` only."""

    def __call__(self, x: Tensor, teacher: Teacher, drawn: Tensor) -> Tensor:
        """What follows from what was drawn, on the images' device; on a GPU it may be recorded and replayed."""


class Objective:
    """The weighted sum of named terms; `key` is the configuration's, for the line that says that one is wrong."""

    def __init__(self, terms: Mapping[str, Term], key: str = "") -> None:
        self.key = key
        self.terms = {name: term for name, term in terms.items() if term.weight != 0}

    @property
    def needs(self) -> frozenset[str]:
        """Everything that the terms with a weight need."""
        return frozenset().union(*(needs_of(term) for term in self.terms.values()))

    def __call__(self, view: View) -> tuple[Tensor, dict[str, Tensor]]:
        """The total, and every term's own unweighted, detached value.

        Raises:
            OneshotError: a term returns no scalar, or one of a user's own writes into the view.
        """
        values = {name: self._scalar(name, self._asked(name, term, view)) for name, term in self.terms.items()}
        total = sum((self.terms[name].weight * value for name, value in values.items()), view.x.new_zeros(()))
        return total, {name: value.detach() for name, value in values.items()}

    def named(self, name: str) -> str:
        """The key of a term."""
        return f"{self.key}.{name}".lstrip(".")

    def _asked(self, name: str, term: Term, view: View) -> Tensor:
        """What a term returns, once it is seen that it leaves what the other terms look at as it is; ours do."""
        value = term(view)
        if not made_of_ours(term) and (written := view.written):
            raise OneshotError(
                f"{self.named(name)}: the loss term writes into view.{written}, which others look at too; let it work "
                "on a copy (.clone())"
            )
        return value

    def _scalar(self, name: str, value: Tensor) -> Tensor:
        """A term's value as it is; one number an image would train on the sum of the batch without a word."""
        if isinstance(value, Tensor) and value.ndim == 0 and value.is_floating_point():
            return value
        raise OneshotError(
            f"{self.named(name)}: the loss term returns {in_words(value)}, and must "
            "return one floating-point number for the whole batch, a tensor of shape []; end it with .mean()"
        )


@dataclass(frozen=True)
class WarmUp:
    """What the student learns from the clients' mean logits on the first round's images, before the rounds."""

    passes: int
    """Over the pool."""
    objective: Objective
    optimizer: OptimizerFactory


@dataclass(frozen=True)
class Loop:
    """The parts of a method that generates and distils."""

    ensemble: Ensemble
    sources: Mapping[str, Source]
    objective: Objective
    pool: Pool
    student: Objective
    optimizer: OptimizerFactory
    """Of the student."""
    perturb: Perturb | None = None
    schedule: Schedule = "constant"
    """Of the student's learning rate over all rounds."""
    warm_up: WarmUp | None = None

    @property
    def optimizers(self) -> dict[str, OptimizerFactory]:
        """By what they train."""
        sources = {of_source(name): source.optimizer for name, source in self.sources.items() if source.optimizer}
        return {**sources, "student": self.optimizer, **({"warm_up": self.warm_up.optimizer} if self.warm_up else {})}


def of_source(name: str) -> str:
    """What a source is called among what has an optimiser."""
    return f"source {name}"


@dataclass(frozen=True)
class WarmUpRecipe:
    """A warm-up before it is made."""

    passes: int
    student: Mapping[str, Recipe[Term]]
    optimizer: Recipe[torch.optim.Optimizer]

    def __call__(self) -> WarmUp:
        """The warm-up."""
        return WarmUp(self.passes, objective_of(self.student, "method.warm_up.student"), self.optimizer)


@dataclass(frozen=True)
class Method:
    """A method as its card composes it: one recipe per slot."""

    name: str
    init: Recipe[Init]
    ensemble: Recipe[Ensemble] | None = None
    """None: nobody teaches."""
    sources: Mapping[str, Recipe[Source]] = field(default_factory=dict)
    """By name; none: the student stays as it began."""
    objective: Mapping[str, Recipe[Term]] = field(default_factory=dict)
    pool: Recipe[Pool] | None = None
    student: Mapping[str, Recipe[Term]] = field(default_factory=dict)
    optimizer: Recipe[torch.optim.Optimizer] | None = None
    schedule: Schedule = "constant"
    perturb: Recipe[Perturb] | None = None
    warm_up: WarmUpRecipe | None = None

    @property
    def needs(self) -> frozenset[str]:
        """What its slots need of the server, of the clients, or of how the student is built."""
        slots = (self.init, self.ensemble, *self.sources.values(), self.perturb)
        own = frozenset[str]().union(*(slot.needs for slot in slots if slot is not None))
        terms = (term.needs for term in self.student.values() if term.settings["weight"] != 0)
        return own | needs_of_start(self.init.target, frozenset[str]().union(*terms))

    @property
    def uses(self) -> frozenset[str]:
        """The kinds of uploads that it makes something of, `classifiers` and `decoders`, also if it can do without."""
        return kinds_used(self.needs, self.init.target, warmed=self.warm_up is not None)

    def loop(self, server: Server, *, warm_up: bool) -> Loop | None:
        """Its parts, with the warm-up where it is wanted; None where nothing is generated or distilled."""
        if self.pool is None or self.optimizer is None or not self.sources:
            return None
        return Loop(
            ensemble=self.ensemble(server) if self.ensemble else NoTeacher(server),
            sources={name: source(server) for name, source in self.sources.items()},
            objective=objective_of(self.objective, "method.objective"),
            pool=self.pool(server),
            student=objective_of(self.student, "method.student"),
            optimizer=self.optimizer,
            perturb=self.perturb(server) if self.perturb else None,
            schedule=self.schedule,
            warm_up=self.warm_up() if self.warm_up and warm_up else None,
        )


def kinds_used(needs: frozenset[str], init: Any, *, warmed: bool) -> frozenset[str]:
    """The same of what is not bound yet.

    Args:
        needs: of all slots.
        init: what says how the student begins; it may name in `uses` what it can do without.
        warmed: whether there is a warm-up, which the classifiers teach.
    """
    where_there = getattr(init, "uses", frozenset[str]())
    return (needs | where_there | ({"classifiers"} if warmed else set[str]())) & {"classifiers", "decoders"}


def step_for(step: Recipe[Step], spec: DataSpec) -> Step:
    """An attack, a gate or a hearing for models of images of `spec`; the same whatever was drawn before."""
    with seeded(0, "step"):
        return step(spec=spec) if "spec" in signature(step.target).parameters else step()


def objective_of(terms: Mapping[str, Recipe[Term]], key: str) -> Objective:
    """The objective of the named terms at a key of the configuration."""
    return Objective({name: term() for name, term in terms.items()}, key)
