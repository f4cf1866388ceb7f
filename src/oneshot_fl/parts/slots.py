"""What a method is made of: every slot's protocol, and what its parts hand each other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.uploads import Recital, Uploads
from oneshot_fl.parts.view import View, Votes
from oneshot_fl.recipe import Recipe
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


def step_for(step: Recipe[Step], spec: DataSpec) -> Step:
    """An attack, a gate or a hearing for models of images of `spec`; the same whatever was drawn before."""
    with seeded(0, "step"):
        return step(spec=spec) if "spec" in signature(step.target).parameters else step()
