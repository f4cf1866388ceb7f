"""Images that belong to no data set: dead leaves and strokes, drawn in milliseconds.

What a network answers to shapes that nobody trained it on is still an answer: such images carry a student to where
inverted images do not reach (dead leaves as training images: Baradad et al., Learning to See by Looking at Noise,
NeurIPS 2021).
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.parts.slots import Made, Turn
from oneshot_fl.parts.uploads import Server
from oneshot_fl.values import Images

LEAVES = 12
"""Discs and rectangles an image, of which each is there with probability 0.6."""
CURVES = 3
"""At most so many curves make one stroke."""
POINTS = 24
"""A curve is drawn through so many points."""


def dead_leaves(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """Discs and rectangles of random place, size and colour that cover each other, half of them on black ground.

    Pixels in [0, 1], `[n, C, H, W]`.
    """
    rows, columns = _grid(spec.size)
    image = _uniform(count, spec.channels, rng=rng) * (_uniform(count, 1, rng=rng) < 0.5)
    image = image.view(count, spec.channels, 1, 1).expand(-1, -1, spec.size, spec.size)
    for _ in range(LEAVES):
        x, y, across, along = _uniform(4, count, 1, 1, rng=rng)
        width, height = ((0.05 + 0.3 * share.square()) * spec.size for share in (across, along))
        dx, dy = (columns - x * spec.size).abs(), (rows - y * spec.size).abs()
        disc, box = dx.square() + dy.square() < width.square(), (dx < width) & (dy < height)
        chosen, there = _uniform(2, count, 1, 1, rng=rng)
        covered = torch.where(chosen < 0.5, disc, box) & (there < 0.6)
        image = torch.where(covered.unsqueeze(1), _uniform(count, spec.channels, 1, 1, rng=rng), image)
    return image


def strokes(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """One to `CURVES` joined quadratic Bezier curves, drawn with a soft pen: light on black, or in two colours.

    Pixels in [0, 1], `[n, C, H, W]`.
    """
    rows, columns = _grid(spec.size)
    nearest = torch.full((count, spec.size, spec.size), float("inf"))
    curves = torch.randint(1, CURVES + 1, (count, 1, 1), generator=rng)
    start = spec.size * (0.2 + 0.6 * _uniform(count, 2, rng=rng))
    for number in range(CURVES):
        middle, end = (spec.size * (0.1 + 0.8 * share) for share in _uniform(2, count, 2, rng=rng))
        for step in range(POINTS):
            x, y = _bezier(start, middle, end, step / (POINTS - 1)).T.unsqueeze(2).unsqueeze(3)
            distance = torch.where(number < curves, (columns - x).square() + (rows - y).square(), float("inf"))
            nearest = torch.minimum(nearest, distance)
        start = end
    pen = spec.size * (0.02 + 0.05 * _uniform(count, 1, 1, rng=rng))
    ink = torch.sigmoid(2.5 * (pen - nearest.sqrt())).unsqueeze(1)
    paper, colour = _two_colours(count, spec, rng)
    return paper + (colour - paper) * ink


def shapes(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """Dead leaves and strokes, half of each: pixels in [0, 1], `[2 * (n // 2), C, H, W]`."""
    return torch.cat([draw(count // 2, spec, rng) for draw in (dead_leaves, strokes)])


def mixtures(count: int, images: Tensor, rng: torch.Generator) -> Tensor:
    """Convex combinations of any two of the images, in shares drawn uniformly, `[count, C, H, W]`."""
    one, other = torch.randint(len(images), (2, count), generator=rng).to(images.device)
    share = _uniform(count, 1, 1, 1, rng=rng).to(images.device)
    return share * images[one] + (1 - share) * images[other]


def _two_colours(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """Of the ground and of the pen, `[2, n, C, 1, 1]`."""
    both = _uniform(2, count, spec.channels, 1, 1, rng=rng)
    return both if spec.channels > 1 else torch.stack([torch.zeros_like(both[0]), 0.6 + 0.4 * both[1]])


def _bezier(start: Tensor, middle: Tensor, end: Tensor, share: float) -> Tensor:
    """A point of a quadratic curve, `[n, 2]`."""
    return (1 - share) ** 2 * start + 2 * share * (1 - share) * middle + share**2 * end


def _grid(size: int) -> tuple[Tensor, Tensor]:
    """The middle of every pixel: rows `[H, 1]`, columns `[1, W]`."""
    line = torch.arange(size) + 0.5
    return line.view(-1, 1), line.view(1, -1)


def _uniform(*shape: int, rng: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=rng)


class ProceduralSource(nn.Module):
    """Images that cost next to nothing, drawn once a round and without labels.

    Args:
        server: with the data spec.
        draw: what they are.
        samples: how many.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    optimizer: OptimizerFactory | None = None
    reset = False

    def __init__(self, server: Server, *, draw: Literal["dead_leaves", "strokes", "mixtures"], samples: Images) -> None:
        super().__init__()
        self.spec, self.draw, self.samples = server.spec, draw, samples

    def begin(self, rng: torch.Generator) -> None:
        """Nothing to draw."""

    def make(self, turn: Turn) -> Made:
        """New images; mixtures are of what the sources before this one made in the same round."""
        if self.draw == "mixtures":
            return Made(mixtures(self.samples, torch.cat(turn.made), turn.rng), None)
        draw = dead_leaves if self.draw == "dead_leaves" else strokes
        return Made(self.spec.normalise(draw(self.samples, self.spec, turn.rng)), None)
