"""Phase 3b, calibration: how sure the global model may be of its answers, learned without a real image.

One temperature T (Guo et al., 2017): probabilities are softmax(logits / T). It is fitted to the labels of the method's
synthetic images, guessed ones among them, provided that some image was made for its label: that most clients take a
drawing for a class is no reason to be sure of it. Images that do not show what they were made for are left out, as
nobody can be right about them. The clients' answers on the same images, on mixtures of them and on procedural images
were tried as well, and made good models less sure than they should be: docs/howto/serving.md.
"""

import math
from dataclasses import dataclass

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.place import place_of
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.parts.recitals import DOUBTED

WIDEST = 4.0
"""Temperatures are sought from exp(-4) to exp(4)."""
ALIKE = 1e-9
"""Mean cross-entropies that differ by less are the same."""


@dataclass(frozen=True)
class Calibration:
    """What the logits are divided by, and on how many images it was fitted."""

    temperature: float
    images: int


def calibrate(
    model: nn.Module,
    images: Tensor | None,
    labels: Tensor | None,
    trust: Tensor | None,
    *,
    spec: DataSpec,
    batch_size: int,
) -> Calibration | None:
    """The temperature of the global model; None where the method makes no images of classes, or they do not tell it.

    Args:
        images: the method's synthetic ones as pictures, uint8 `[n, C, H, W]`: pixels beyond black or white are cut.
        labels: what they were made for, or what the clients took them for, `[n]`.
        trust: how far each shows its label, `[n]`; 0 where it is only guessed.
    """
    if images is None or labels is None or trust is None or not (trust > DOUBTED).any():
        return None
    told = trust != DOUBTED
    found = temperature(_logits(model, images[told], spec, batch_size), labels[told])
    return None if found is None else Calibration(found, int(told.sum()))


def temperature(logits: Tensor, labels: Tensor) -> float | None:
    """T that minimises the mean cross-entropy of logits `[n, c]` / T against labels `[n]`; four significant digits.

    The cross-entropy is convex in 1/T, so that there is one minimum. It lies at T = 0 where no image is mistaken, or as
    good as none: such images would make every model as sure as can be, and None says that they tell nothing. Labels no
    better than chance ask for as much doubt as can be, which is given.
    """
    wide = logits.double()

    def loss(log_temperature: float) -> float:
        return float(F.cross_entropy(wide / math.exp(log_temperature), labels))

    found = minimize_scalar(loss, bounds=(-WIDEST, WIDEST), method="bounded")
    return None if loss(-WIDEST) < found.fun + ALIKE else float(f"{math.exp(found.x):.4g}")


@torch.no_grad()
def _logits(model: nn.Module, images: Tensor, spec: DataSpec, batch_size: int) -> Tensor:
    """`[n, c]`"""
    device = place_of(model)
    model.eval()
    parts = [at_least_float32(model(spec.to_input(part.to(device)))) for part in images.split(batch_size)]
    return torch.cat(parts).cpu()
