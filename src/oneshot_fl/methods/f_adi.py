"""F-ADI: Adaptive DeepInversion with the clients' ensemble as its teacher.

H. Yin et al.: Dreaming to Distill: Data-Free Knowledge Transfer via DeepInversion, CVPR 2020; federated as in
Co-Boosting (ICLR 2024), which released no code for it. The paper was not at hand; the card follows its official code.

| what | part | config key |
|---|---|---|
| the images themselves are optimised, from N(0, 1) | `models.generators.Pixels` | `method.source` |
| teacher: mean of client logits | `parts.ensembles.LogitAverage` | `method.ensemble` |
| CE(P, y) | `parts.terms.CrossEntropy` | `method.objective.ce` |
| total variation, l2 norms of four neighbour differences | `parts.terms.TotalVariation` | `method.objective.tv` |
| mean Euclidean norm of an image | `ImageNorm` | `method.objective.l2` |
| BN statistics, mean over clients | `parts.terms.BatchNormStatistics` | `method.objective.bn` |
| 1 - JS(P, student) at T = 3: images on which they differ | `Competition` | `method.objective.js` |
| pool of all rounds | `parts.pools.Pool` | `method.pool` |
| student: T^2 KL, T = 4 (Co-Boosting) | `parts.terms.Distillation` | `method.student.kl` |

Weights are the code's for CIFAR-10 (bn 10, tv 2.5e-5, Adam 0.05), with ImageNet's l2 1e-5 and competition 0.2, which
the CIFAR-10 script leaves at 0.
JS is the code's: the mean KL divergence from the mixture to each, of probabilities clipped to [0.01, 0.99]; its own
definition has them the other way round.
Deviations: T_G steps per batch as for all methods here (ADI takes 1,000 to 2,000); labels are drawn, as for all
methods here (ADI has 0..c-1 in turn); no random shift of the images.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from oneshot_fl.parts.view import View
from oneshot_fl.values import NotNegative, Positive


@dataclass(frozen=True)
class ImageNorm:
    """The Euclidean norm of an image."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        return torch.linalg.vector_norm(view.x.flatten(1), dim=1).mean()


@dataclass(frozen=True)
class Competition:
    """1 - JS(softmax(P / T), softmax(student / T)), probabilities clipped to [0.01, 0.99], JS to [0, 1]."""

    weight: NotNegative
    temperature: Positive
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch; KL from the mixture to each, as in the code (the paper's JS is the other way round)."""
        p, q = (F.softmax(logits / self.temperature, dim=1) for logits in (view.student, view.teacher))
        mixture = ((p + q) / 2).clamp(0.01, 0.99)
        p, q = p.clamp(0.01, 0.99), q.clamp(0.01, 0.99)
        divergences = torch.stack([F.kl_div(one.log(), mixture, reduction="batchmean") for one in (p, q)])
        return 1 - divergences.mean().clamp(0, 1)
