"""Phase 3b, calibration: how sure the global model may be of its answers, learned without a real image.

One temperature T (Guo et al., 2017): probabilities are softmax(logits / T). What it is fitted to is the mean of the
clients' probabilities, which no method's own loss makes sure of itself; where, is images that are nobody's: the
method's synthetic ones, else procedural ones. Which teacher and which images come nearest to a temperature fitted on
the test set was measured: docs/howto/serving.md.
"""

import math
from dataclasses import dataclass

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.per_architecture import mean_probability
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.parts.procedural import dead_leaves, strokes
from oneshot_fl.seeds import torch_generator

WIDEST = 4.0
"""Temperatures are sought from exp(-4) to exp(4)."""
DRAWN = 500
"""Procedural images of each of two kinds, where a method has no images of its own."""


@dataclass(frozen=True)
class Calibration:
    """What the logits are divided by, and what that was fitted to."""

    temperature: float
    images: int
    kind: str
    """Of the images: `synthetic`, the method's own, or `procedural`."""


def calibrate(
    model: nn.Module,
    clients: list[nn.Module],
    images: Tensor | None,
    *,
    spec: DataSpec,
    seed: int,
    batch_size: int,
) -> Calibration | None:
    """The temperature of the global model; None where no client uploaded a classifier.

    Args:
        images: the method's synthetic ones, uint8 `[n, C, H, W]`; None: it has none, and procedural ones are drawn.
    """
    if not clients:
        return None
    shown = _procedural(spec, seed) if images is None else spec.to_input(images)
    logits, targets = _answers(model, ClientBank(clients, mode="loop"), shown, batch_size)
    return Calibration(temperature(logits, targets), len(shown), "procedural" if images is None else "synthetic")


def temperature(logits: Tensor, targets: Tensor) -> float:
    """T that minimises the mean cross-entropy of softmax(logits / T) against target probabilities, both `[n, c]`.

    The cross-entropy is convex in 1/T, so that there is one minimum; four significant digits.
    """
    wide, wanted = logits.double(), targets.double()

    def loss(log_temperature: float) -> float:
        logs = (wide / math.exp(log_temperature)).log_softmax(dim=1)
        return -float((wanted * logs).sum(dim=1).mean())

    found = minimize_scalar(loss, bounds=(-WIDEST, WIDEST), method="bounded")
    return float(f"{math.exp(found.x):.4g}")


@torch.no_grad()
def _answers(model: nn.Module, bank: ClientBank, images: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """The model's logits and the clients' mean probabilities, both `[n, c]`."""
    device = next(model.parameters()).device
    model.eval()
    bank.to(device)
    parts = [part.to(device) for part in images.split(batch_size)]
    logits = torch.cat([at_least_float32(model(part)) for part in parts])
    return logits.cpu(), torch.cat([mean_probability(bank(part).logits).exp() for part in parts]).cpu()


def _procedural(spec: DataSpec, seed: int) -> Tensor:
    rng = torch_generator(seed, "calibration")
    return spec.normalise(torch.cat([draw(DRAWN, spec, rng) for draw in (dead_leaves, strokes)]))
