"""Images that belong to no data set: dead leaves, strokes and textures, drawn in milliseconds.

What a network answers to shapes that nobody trained it on is still an answer: such images carry a student to where
inverted images do not reach (dead leaves and noise of natural spectra as training images: Baradad et al., Learning to
See by Looking at Noise, NeurIPS 2021).
"""

import itertools
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from oneshot_fl.data.augment import random_flip, random_shift
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
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
FALL = (0.8, 1.6)
"""Amplitudes of a texture fall with the frequency to a power in between; in photographs it is about 1 (Field 1987)."""
TINT = 0.35
"""How far the channels of a texture go apart: the deviation of what each takes of another's noise."""
LEVEL, CONTRAST = (0.375, 0.625), (0.1, 0.3)
"""Of a texture's pixels, the mean of each channel and the deviation of all."""


def dead_leaves(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """Discs and rectangles of random place, size and colour that cover each other, half of them on black ground.

    Pixels in [0, 1], `[n, C, H, W]`.
    """
    colour = _uniform(count, spec.channels, rng=rng) * (_uniform(count, 1, rng=rng) < 0.5)
    ground = colour.view(count, spec.channels, 1, 1).expand(-1, -1, spec.size, spec.size)
    return _covered(ground, lambda: _uniform(count, spec.channels, 1, 1, rng=rng), rng)


def textures(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """Dead leaves whose ground and leaves are patches of noise with the spectrum of photographs.

    The leaves of an image are cut out of other images' grounds: to draw so many again takes ten times as long.
    Pixels in [0, 1], `[n, C, H, W]`.
    """
    grounds, steps = _noise(count, spec, rng), itertools.count(1)
    return _covered(grounds, lambda: grounds.roll(next(steps), dims=0), rng)


def _covered(image: Tensor, leaf: Callable[[], Tensor], rng: torch.Generator) -> Tensor:
    """Images `[n, C, H, W]` under `LEAVES` discs and rectangles, each cut out of what `leaf` draws for all images."""
    count, size = len(image), image.shape[-1]
    rows, columns = _grid(size)
    for _ in range(LEAVES):
        x, y, across, along = _uniform(4, count, 1, 1, rng=rng)
        width, height = ((0.05 + 0.3 * share.square()) * size for share in (across, along))
        dx, dy = (columns - x * size).abs(), (rows - y * size).abs()
        disc, box = dx.square() + dy.square() < width.square(), (dx < width) & (dy < height)
        chosen, there = _uniform(2, count, 1, 1, rng=rng)
        covered = torch.where(chosen < 0.5, disc, box) & (there < 0.6)
        image = torch.where(covered.unsqueeze(1), leaf(), image)
    return image


def _noise(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """Noise whose amplitudes fall with the frequency, cut to [0, 1], `[n, C, H, W]`."""
    waves = torch.fft.fftfreq(spec.size).view(-1, 1).square() + torch.fft.rfftfreq(spec.size).square()
    amplitude = waves.sqrt().clamp_min(1 / spec.size) ** -_between(FALL, _uniform(count, 1, 1, 1, rng=rng))
    phases = torch.randn(count, spec.channels, *waves.shape, dtype=torch.complex64, generator=rng)
    plain = torch.fft.irfft2(amplitude * phases, s=(spec.size, spec.size))
    shares = 1 + TINT * torch.randn(count, spec.channels, spec.channels, generator=rng)
    with torch.autocast(plain.device.type, enabled=False):  # what is drawn hangs on no precision
        mixed = torch.einsum("ncd,ndhw->nchw", shares, plain)
    even = (mixed - mixed.mean(dim=(1, 2, 3), keepdim=True)) / mixed.std(dim=(1, 2, 3), keepdim=True)
    level = _between(LEVEL, _uniform(count, spec.channels, 1, 1, rng=rng))
    return (level + _between(CONTRAST, _uniform(count, 1, 1, 1, rng=rng)) * even).clamp(0, 1)


def _between(bounds: tuple[float, float], share: Tensor) -> Tensor:
    low, high = bounds
    return low + (high - low) * share


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


def variations(count: int, images: Tensor, rng: torch.Generator) -> Tensor:
    """Any of the images `[n, C, H, W]`, moved by up to an eighth of their side and mirrored or not: `[count, ...]`."""
    chosen = images[torch.randint(len(images), (count,), generator=rng).to(images.device)]
    return random_shift(random_flip(chosen, rng), images.shape[-1] // 8, rng)


def _two_colours(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """Of the ground and of the pen, `[2, n, C, 1, 1]`."""
    both = _uniform(2, count, spec.channels, 1, 1, rng=rng)
    return torch.stack([torch.zeros_like(both[0]), 0.6 + 0.4 * both[1]]) if spec.grey else both


def _bezier(start: Tensor, middle: Tensor, end: Tensor, share: float) -> Tensor:
    """A point of a quadratic curve, `[n, 2]`."""
    return (1 - share) ** 2 * start + 2 * share * (1 - share) * middle + share**2 * end


def _grid(size: int) -> tuple[Tensor, Tensor]:
    """The middle of every pixel: rows `[H, 1]`, columns `[1, W]`."""
    line = torch.arange(size) + 0.5
    return line.view(-1, 1), line.view(1, -1)


def _uniform(*shape: int, rng: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=rng)


DRAWINGS = {"dead_leaves": dead_leaves, "strokes": strokes, "textures": textures}
OF_OTHERS = {"mixtures": mixtures, "variations": variations}
"""Drawn of the images that the sources before them made in the same round."""
Draw = Literal["dead_leaves", "strokes", "textures", "mixtures", "variations"]


class ProceduralSource(nn.Module):
    """Images that cost next to nothing, drawn once a round and without labels.

    Args:
        server: with the data spec.
        draw: what they are.
        samples: how many.
        colour_only: make none where images are grey.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    unlabelled: ClassVar[bool] = True
    counted_by: ClassVar[str] = "samples"
    optimizer: OptimizerFactory | None = None
    reset = False

    def __init__(self, server: Server, *, draw: Draw, samples: Images, colour_only: bool = False) -> None:
        super().__init__()
        self.spec, self.draw = server.spec, draw
        self.samples = 0 if colour_only and server.spec.grey else samples

    def begin(self, rng: torch.Generator) -> None:
        """Nothing to draw."""

    def make(self, turn: Turn) -> Made:
        """New images, by themselves or of what the sources before this one made in the same round."""
        if not self.samples:
            return Made(torch.empty(0, self.spec.channels, self.spec.size, self.spec.size), None)
        if self.draw in OF_OTHERS:
            return Made(OF_OTHERS[self.draw](self.samples, self._others(turn), turn.rng), None)
        return Made(self.spec.normalise(DRAWINGS[self.draw](self.samples, self.spec, turn.rng)), None)

    def _others(self, turn: Turn) -> Tensor:
        if not any(map(len, turn.made)):
            raise OneshotError(
                f"method.source: {self.draw} are drawn of images that other sources make before, and none does; put "
                f"them beside others in a method whose sources have names (method=fedchorus), "
                f"+method/source@method.source.{self.draw}={self.draw}"
            )
        return torch.cat(turn.made)
