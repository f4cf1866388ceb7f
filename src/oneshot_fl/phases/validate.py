"""Phase 4b, validation: how well the global model has learned what it was taught, without a test image.

The student is compared with its teacher, the method's ensemble, on images that it was not trained on: part of the
synthetic ones, or proxy images that the method does not use. This is what a search over settings may look at.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.batches import last_joined
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.models.soundness import TURNED_AWAY
from oneshot_fl.parts.ensembles import label_free, needs_several
from oneshot_fl.parts.view import EnsembleFunction, ask
from oneshot_fl.recipe import needs_of

Images = Literal["synthetic", "proxy"]


@dataclass(frozen=True)
class Validation:
    """The student beside its teacher on images that it was not trained on."""

    of: Images
    images: int
    disagreement: float
    """Share of the images that the two call by different names; smaller is better."""
    divergence: float
    """Mean Kullback-Leibler divergence KL(teacher || student) in nats."""


@torch.no_grad()
def validate(
    images: Tensor,
    student: nn.Module,
    clients: list[nn.Module],
    ensemble: EnsembleFunction,
    *,
    of: Images,
    spec: DataSpec,
    batch_size: int,
    device: torch.device,
) -> Validation:
    """Compare student and ensemble.

    Args:
        images: uint8 `[n, C, H, W]`.
        student: the global model.
        clients: the classifiers that the ensemble is made of.
        ensemble: is not told what an image was made for, as in tests.
        of: what the images are.
        spec: of the images.
        batch_size: how many are looked at together.
        device: where.

    Raises:
        OneshotError: the teacher answers with what is no number, with which nothing can agree.
    """
    bank, student = ClientBank(clients, mode="loop").to(device), student.to(device).eval()
    if isinstance(ensemble, nn.Module):
        ensemble = ensemble.to(device)
    different, divergence = torch.zeros((), device=device), torch.zeros((), device=device)
    parts = list(images.split(batch_size))
    for part in last_joined(parts) if needs_several(ensemble) else parts:
        x = spec.to_input(part.to(device))
        votes = ask(bank, x, torch.zeros(len(x), dtype=torch.long, device=device), needs_of(ensemble))
        teacher = at_least_float32(label_free(ensemble, votes)).log_softmax(1)
        if not teacher.exp().isfinite().all():
            raise OneshotError(f"evaluate.validation: the teacher's answers are not finite; {TURNED_AWAY}")
        own = at_least_float32(student(x)).log_softmax(1)
        different += (teacher.argmax(1) != own.argmax(1)).sum()
        divergence += F.kl_div(own, teacher.exp(), reduction="sum")  # 0 where the teacher excludes a class
    return Validation(of, len(images), float(different) / len(images), float(divergence) / len(images))
