"""Images that stand elsewhere whenever the student sees them."""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from oneshot_fl.data.augment import flipped, random_corners, random_sides, shifted
from oneshot_fl.parts.slots import Teacher
from oneshot_fl.parts.uploads import Server
from oneshot_fl.values import BelowOne

Mirrored = Literal["always", "in_colour", "never"]
"""Which images may be mirrored; a digit that is mirrored is none, in whatever colours."""


def mirrors(which: Mirrored, *, grey: bool) -> bool:
    """Whether images that are grey, or not, may be."""
    return which == "always" or (which == "in_colour" and not grey)


class Moved:
    """Every image is moved and mirrored anew whenever the student sees it; the answers stay those to the unmoved one.

    What is to be told of an image hardly changes with where it stands, and asking the clients anew in every step would
    cost more than the student does. Where a mirrored image is another, as a digit's is, its answer would be wrong.

    Args:
        server: with the data spec.
        share: images are moved by up to this share of their side, in whole pixels.
        mirrored: which images are mirrored, half the time, also where they are too small to be moved.
        colour_only: leave grey images as they are.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    keeps_answers: ClassVar[bool] = True

    def __init__(self, server: Server, *, share: BelowOne, mirrored: Mirrored, colour_only: bool) -> None:
        self.most = min(round(share * server.spec.size), server.spec.size - 1)
        self.still = colour_only and server.spec.grey
        self.mirrored = mirrors(mirrored, grey=server.spec.grey)

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        """Where each image is moved to and whether it is mirrored, `[3, b]`; nothing where they stay."""
        if self.still:
            return torch.empty(0)
        corners = random_corners(count, self.most, rng)
        return torch.cat([corners, random_sides(count, rng)[None] * self.mirrored])

    def __call__(self, x: Tensor, teacher: Teacher, drawn: Tensor) -> Tensor:
        """Images `[b, C, H, W]` -> the same images, moved; the teacher is not asked."""
        return x if self.still else flipped(shifted(x, self.most, drawn[:2]), drawn[2])
