"""A method, built: what the loop of `phases.distill` is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn

from oneshot_fl.parts.ensembles import Ensemble
from oneshot_fl.parts.perturb import Perturb
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.sources import Source
from oneshot_fl.parts.terms import Objective
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.phases.trainer import OptimizerFactory


@dataclass(frozen=True)
class WarmUp:
    """What the student learns from the clients' mean logits on the first round's images, before the rounds."""

    passes: int
    """Over the pool."""
    objective: Objective


@dataclass(frozen=True)
class Loop:
    """The slots of a method that generates and distils."""

    ensemble: Ensemble
    source: Source
    objective: Objective
    pool: Pool
    student: Objective
    optimizers: Mapping[str, OptimizerFactory]
    """Of the `source`, where it has something to train, of the `student`, and of its `warm_up`, if there is one."""
    perturb: Perturb | None = None
    schedule: Literal["constant", "cosine"] = "constant"
    """Of the student's learning rate over the rounds."""
    warm_up: WarmUp | None = None


@dataclass(frozen=True)
class Method:
    """How the student begins, and the loop that improves it, if there is one."""

    init: Callable[[nn.Module, Uploads], nn.Module]
    loop: Loop | None
