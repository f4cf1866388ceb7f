"""How a classifier does class by class: what one accuracy hides where the classes are not equally frequent.

Figures that a test set cannot give are None and are never averaged: the recall of a class without a test image, and
the AUROC of a class that has none, or has all of them.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torchmetrics.functional.classification import multiclass_auroc, multiclass_confusion_matrix

BINS = 15
"""Of the calibration error, (a, b] and equally wide (Guo et al., "On Calibration of Modern Neural Networks", 2017)."""


@dataclass(frozen=True)
class ClassFigures:
    """Of one classifier on a test set of `c` classes; all but `confusion` are fractions."""

    confusion: list[list[int]]
    """Test images `[c, c]`: of the row's class, called the column's."""
    auroc: list[float | None]
    """Of each class against all others."""
    ece: float
    """Expected calibration error: the mean gap between how sure answers are and how often they are right."""

    @property
    def images(self) -> list[int]:
        """Test images of every class."""
        return [sum(row) for row in self.confusion]

    @property
    def recall(self) -> list[float | None]:
        """Which share of a class's images are called by its name."""
        return recalls(torch.tensor(self.confusion))

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have a test image."""
        return balanced_accuracy(torch.tensor(self.confusion))

    @property
    def macro_auroc(self) -> float | None:
        """The mean over the classes that have one; None where none has."""
        return _mean(self.auroc)


def class_figures(logits: Tensor, y: Tensor, *, temperature: float = 1.0) -> ClassFigures:
    """Of logits `[n, c]` on at least one test image with labels `[n]`.

    Args:
        temperature: of the probabilities that the model is handed on with, in whose order the AUROC is; how sure it is
            without is what `ece` tells.
    """
    classes, images = logits.shape[1], torch.bincount(y, minlength=logits.shape[1]).tolist()
    order = torch.stack([in_order(own) for own in log_odds(logits / temperature).T], dim=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No (positive|negative) samples")  # those are None here
        auroc = multiclass_auroc(order, y, num_classes=classes, average=None).tolist()
    return ClassFigures(
        confusion=multiclass_confusion_matrix(logits, y, num_classes=classes).tolist(),
        auroc=[rounded(value) if 0 < own < len(y) else None for value, own in zip(auroc, images, strict=True)],
        ece=calibration_error(logits, y),
    )


def log_odds(logits: Tensor) -> Tensor:
    """log(p / (1 - p)) of every class, `[n, c]`: probabilities of sure answers tie at 1, these do not."""
    wide = logits.detach().double()
    likeliest, whole = wide.argmax(dim=1, keepdim=True), wide.logsumexp(dim=1, keepdim=True)
    others = whole + torch.log1p(-(wide - whole).exp())  # of all classes but one, exact unless that one is likeliest
    without = wide.scatter(1, likeliest, -torch.inf).logsumexp(dim=1, keepdim=True)
    return wide - others.scatter(1, likeliest, without)


def in_order(scores: Tensor) -> Tensor:
    """Shares from 0 to 1 in the order of scores `[n]`, equal ones alike: scores of any size are no probabilities."""
    ranks = scores.unique(return_inverse=True)[1].double()
    return ranks / max(float(ranks.max()), 1.0)


def calibration_error(logits: Tensor, y: Tensor) -> float:
    """The expected one, of logits `[n, c]` on images with labels `[n]`.

    Not by torchmetrics, which rounds to single precision and gives answers that are 1 there, most of a sure model's, a
    bin of their own beyond the last.
    """
    sureness, answers = logits.detach().double().softmax(dim=1).max(dim=1)
    inner_borders = torch.arange(1, BINS, dtype=torch.double, device=logits.device) / BINS
    bins = one_hot(torch.bucketize(sureness, inner_borders), BINS).double()
    gaps = bins.T @ ((answers == y).double() - sureness)
    return rounded(float(gaps.abs().sum()) / len(y))


def recalls(confusion: Tensor) -> list[float | None]:
    """Of every class of a confusion matrix `[c, c]` of counts; None where there is no image of it."""
    pairs = zip(confusion.diagonal().tolist(), confusion.sum(dim=1).tolist(), strict=True)
    return [rounded(right / images) if images else None for right, images in pairs]


def accuracy(confusion: Tensor) -> float:
    """The share of right answers in a confusion matrix `[c, c]` of counts."""
    return rounded(int(confusion.diagonal().sum()) / int(confusion.sum()))


def balanced_accuracy(confusion: Tensor) -> float:
    """The mean recall of the classes that have a test image, of a confusion matrix `[c, c]` with any count."""
    mean = _mean(recalls(confusion))
    if mean is None:
        raise ValueError("a confusion matrix of no images has no balanced accuracy")
    return mean


def rounded(value: float) -> float:
    """A fraction with six digits, which is exact to one sample in a million."""
    return round(value, 6)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return rounded(sum(known) / len(known)) if known else None
