"""F-DAFL: DAFL with the clients' ensemble as its teacher.

H. Chen et al.: Data-Free Learning of Student Networks, ICCV 2019; federated as in Co-Boosting (ICLR 2024), which
released no code for it. DAFL's paper was not at hand; the card follows its official code.

| what | part | config key |
|---|---|---|
| teacher: mean of client logits | `parts.ensembles.LogitAverage` | `method.ensemble` |
| CE(P, argmax P): images should look like some class | `PseudoLabel` | `method.objective.one_hot` |
| -mean abs f: strong features, mean over clients | `Activation` | `method.objective.activation` |
| sum p log10 p of the batch's mean p: all classes alike | `InformationEntropy` | `method.objective.entropy` |
| each batch is used once | `parts.pools.Pool` | `method.pool.rounds` |
| generator kept over rounds | `parts.sources.GeneratorSource` | `method.source` |
| student: T^2 KL, T = 4 (Co-Boosting) | `parts.terms.Distillation` | `method.student.kl` |

Weights are those of DAFL's code for MNIST: 1, 0.1, 5; for CIFAR-10 it has 0.05, 0.01, 5, for CIFAR-100 0.5, 0.1, 20.
Deviations: the generator takes T_G steps per round at the protocol's learning rate before the student takes one (DAFL
steps both on the same batch, at 0.2); the generator is the one that all methods here use.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from oneshot_fl.parts.view import View
from oneshot_fl.values import NotNegative


@dataclass(frozen=True)
class PseudoLabel:
    """CE(P, argmax P)."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        return F.cross_entropy(view.teacher, view.teacher.argmax(dim=1))


@dataclass(frozen=True)
class Activation:
    """-mean |f_k|, f_k what enters client k's last layer."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def __call__(self, view: View) -> Tensor:
        """Mean over clients."""
        return -torch.stack([feature.abs().mean() for feature in view.features]).mean()


@dataclass(frozen=True)
class InformationEntropy:
    """sum_c p_c log10 p_c of the batch's mean probabilities p: negative entropy, least when classes are balanced."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """One number per batch."""
        mean = view.teacher.softmax(dim=1).mean(dim=0)
        smallest = torch.finfo(mean.dtype).tiny  # of a class that nobody says at all the gradient of 0 log 0 is NaN
        return (mean * mean.clamp_min(smallest).log()).sum() / math.log(10)
