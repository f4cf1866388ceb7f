"""What each client adds to the teacher, asked on synthetic images, and which classes nobody speaks for."""

from dataclasses import dataclass

import torch
from torch import Tensor

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.per_architecture import mean_probability
from oneshot_fl.parts.procedural import shapes
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.parts.view import in_pieces
from oneshot_fl.phases.global_model import Distilled
from oneshot_fl.seeds import torch_generator

PROBES = 512
"""Images of no data set, where the method made none."""


@dataclass(frozen=True)
class Contributions:
    """Of clients with a classifier, in their order."""

    changes: list[float]
    """Share of the images on which the clients' mean probability names another class without this one."""
    favourites: list[int]
    """The class that each says most often on them."""
    shares: list[float]
    """How often."""
    uncovered: list[int]
    """Classes that no client reports samples of, and that no client without such a report names on any image."""
    images: int


@torch.no_grad()
def contributions(uploads: Uploads, distilled: Distilled, spec: DataSpec) -> Contributions:
    """Leave one client out after the other, on the images that the student was distilled on."""
    bank, images = ClientBank(uploads.models, mode="loop"), _images(distilled, spec)
    P = torch.cat([bank(spec.to_input(part)).logits for part in in_pieces(images, spec.size)], dim=1)
    said = P.argmax(dim=2)
    counts = torch.stack([each.bincount(minlength=spec.classes) for each in said])
    return Contributions(
        changes=_changes(P),
        favourites=counts.argmax(dim=1).tolist(),
        shares=[_rounded(each) for each in counts.amax(dim=1) / len(images)],
        uncovered=uncovered(uploads, counts),
        images=len(images),
    )


def _images(distilled: Distilled, spec: DataSpec) -> Tensor:
    """uint8 `[n, C, H, W]`"""
    if distilled.images is not None:
        return distilled.images
    return (255 * shapes(PROBES, spec, torch_generator(0, "contributions"))).round().to(torch.uint8)


def _changes(P: Tensor) -> list[float]:
    """Of logits `[m, b, c]`; of a single client all answers are its own."""
    if len(P) == 1:
        return [1.0]
    together = mean_probability(P).argmax(dim=1)
    without = (mean_probability(torch.cat([P[:k], P[k + 1 :]])).argmax(dim=1) for k in range(len(P)))
    return [_rounded((answers != together).float().mean()) for answers in without]


def _rounded(share: Tensor) -> float:
    """To four digits: there are some hundred images."""
    return round(float(share), 4)


def uncovered(uploads: Uploads, said: Tensor | None = None) -> list[int]:
    """Classes that nobody tells to have samples of, and that no client which does not tell says.

    Args:
        said: how often each classifier says each class, `[m, c]`; not needed where all tell, as decoders do.
    """
    counts = [each.label_counts for each in uploads.decoders]
    for k, upload in enumerate(uploads.classifiers):
        if upload.label_counts is not None:
            counts.append(upload.label_counts)
        elif said is not None:
            counts.append(said[k])
    return (torch.stack(counts).sum(dim=0) == 0).nonzero().flatten().tolist()
