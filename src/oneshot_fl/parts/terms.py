"""Named, weighted loss terms: each maps a `View` to a scalar and declares what it needs."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from oneshot_fl.parts.view import View
from oneshot_fl.values import NotNegative, Positive


def kl_divergence(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)) per sample: logits `[b, c]` -> `[b]`."""
    target = F.log_softmax(teacher / temperature, dim=1)
    guess = F.log_softmax(student / temperature, dim=1)
    return F.kl_div(guess, target, reduction="none", log_target=True).sum(dim=1) * temperature**2


@dataclass(frozen=True)
class CrossEntropy:
    """CE(P, y): the ensemble should see the label that the image was made for (FedHydra Eq. 13; DENSE)."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        return F.cross_entropy(view.teacher, view.y)


@dataclass(frozen=True)
class HardCrossEntropy:
    """mean (1 - p_y)^power CE(P, y): samples that the ensemble finds hard weigh more (Co-Boosting,
    Eqs. 5-6; p is not trained)."""

    weight: NotNegative
    power: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        losses = F.cross_entropy(view.teacher, view.y, reduction="none")
        return ((1 - torch.exp(-losses.detach())) ** self.power * losses).mean()


@dataclass(frozen=True)
class BatchNormStatistics:
    """1/m sum_k sum_l (|mu_l - mu_kl| + |var_l - var_kl|), Euclidean norms (FedHydra Eq. 14; DENSE).

    mu_l and var_l are the synthetic batch's at the input of layer l *of client k*; mu_kl and var_kl are that layer's
    running statistics. A client without batch normalisation adds nothing.
    """

    weight: NotNegative
    over_clients: Literal["mean", "sum"] = "mean"
    """The sum has no 1/m (FedISCA)."""
    needs: ClassVar[frozenset[str]] = frozenset({"statistics"})

    def __call__(self, view: View) -> Tensor:
        """Mean or sum over clients, sum over their layers."""
        distances = [
            torch.linalg.vector_norm(layer.batch_mean - layer.running_mean)
            + torch.linalg.vector_norm(layer.batch_var - layer.running_var)
            for client in view.statistics
            for layer in client
        ]
        total = torch.stack([view.x.new_zeros(()), *distances]).sum()
        return total / len(view.statistics) if self.over_clients == "mean" else total


@dataclass(frozen=True)
class Adversarial:
    """-KL(P || student): images on which teacher and student differ (FedHydra Eq. 15).

    With `only_disagreement` only samples whose most likely classes differ count, divided by the whole batch (DENSE).
    """

    weight: NotNegative
    temperature: Positive
    only_disagreement: bool
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        divergence = kl_divergence(view.teacher, view.student, self.temperature)
        if self.only_disagreement:
            divergence = divergence * (view.teacher.argmax(1) != view.student.argmax(1))
        return -divergence.mean()


@dataclass(frozen=True)
class Roughness:
    """Mean absolute difference between neighbouring pixels along rows, plus that along columns (FedChorus, Eq. 4)."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, view: View) -> Tensor:
        """One number per batch, in the space that models see."""
        rows, columns = view.x.diff(dim=2).abs().mean(), view.x.diff(dim=3).abs().mean()
        return torch.stack([rows, columns]).sum()


@dataclass(frozen=True)
class Distillation:
    """T^2 KL(P || student) (FedHydra Eq. 17 with T=1; DENSE with its temperature); DFDG's is not `squared`: no T^2."""

    weight: NotNegative
    temperature: Positive
    squared: bool = True
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        divergence = kl_divergence(view.teacher, view.student, self.temperature).mean()
        return divergence if self.squared else divergence / self.temperature**2


@dataclass(frozen=True)
class LabelCrossEntropy:
    """CE(student, y): the student should see the label that the image was drawn for (FedMHO Eq. 5; FEDCVAE).

    Every image counts as far as its label is trusted; images of those two methods wholly.
    """

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        return (view.trust * F.cross_entropy(view.student, view.y, reduction="none")).mean()


@dataclass(frozen=True)
class TotalVariation:
    """|dx| + |dy| + |two diagonals|: Euclidean norms over the whole batch (F-ADI, FedISCA)."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, view: View) -> Tensor:
        """One number per batch."""
        x = view.x
        differences = (
            x[..., :, 1:] - x[..., :, :-1],
            x[..., 1:, :] - x[..., :-1, :],
            x[..., 1:, 1:] - x[..., :-1, :-1],
            x[..., 1:, :-1] - x[..., :-1, 1:],
        )
        return torch.stack([torch.linalg.vector_norm(difference) for difference in differences]).sum()
