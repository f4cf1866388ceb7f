"""A method as its card composes it, a recipe for each slot, and the loop that it becomes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.parts.ensembles import Fixed, NoTeacher
from oneshot_fl.parts.objective import Objective, objective_of
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.slots import Ensemble, Init, Perturb, Schedule, Source, Term
from oneshot_fl.parts.uploads import Server
from oneshot_fl.process import say
from oneshot_fl.recipe import Recipe, made_of_ours, needs_of_start


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

    def __post_init__(self) -> None:
        """Whether what is to be trained can be, and whether anybody trains what could.

        Raises:
            OneshotError: a source with an optimiser has no parameter.
        """
        for name, source in self.sources.items():
            if source.optimizer and not _has_parameters(source):
                raise OneshotError(
                    f"method.source: {name} has an optimizer and no parameter that it could train; set optimizer = None"
                )
        terms = {each.named(name): term for each in (self.objective, self.student) for name, term in each.terms.items()}
        for key, part in {"method.ensemble": self.ensemble, **terms}.items():
            if not made_of_ours(part) and _has_parameters(part) and _learns_nothing(part):
                say(f"{key}: has parameters, and nobody trains them: only those of sources and of the student are")

    @property
    def optimizers(self) -> dict[str, OptimizerFactory]:
        """By what they train."""
        sources = {of_source(name): source.optimizer for name, source in self.sources.items() if source.optimizer}
        return {**sources, "student": self.optimizer, **({"warm_up": self.warm_up.optimizer} if self.warm_up else {})}


def _has_parameters(part: Any) -> bool:
    return isinstance(part, nn.Module) and any(parameter.requires_grad for parameter in part.parameters())


def _learns_nothing(part: Any) -> bool:
    """Not even from the pool, as an ensemble with a `refit` of its own does."""
    return getattr(type(part), "refit", Fixed.refit) is Fixed.refit


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
