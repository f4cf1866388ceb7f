"""Images drawn from the clients' own decoders (FedMHO, FEDCVAE)."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.models.place import place_of
from oneshot_fl.models.soundness import drawn_wrong
from oneshot_fl.parts.slots import Made, Turn
from oneshot_fl.parts.uploads import Server, known_classes
from oneshot_fl.parts.view import in_pieces
from oneshot_fl.seeds import torch_generator
from oneshot_fl.values import Images, Positive

Split = Literal["label_distribution", "squared_counts", "categorical"]


def shares_by_label(counts: Tensor, samples: int) -> Tensor:
    """FedMHO's paper (Sec. 4.2.2): every decoder draws its own share of `samples` by its own label distribution.

    Counts `[k, c]` -> numbers of images `[k, c]`, proportional to the counts and rounded down.
    """
    return counts * samples // counts.sum()


def shares_by_squares(counts: Tensor, samples: int, able: Tensor) -> Tensor:
    """FedMHO's code: every class has the same budget, which decoders share by the squares of their counts.

    A class that no decoder has seen is shared evenly by those that are `able` to draw it, bool `[k, c]`: its images
    then come from decoders that guess. A class that no decoder can be asked for gets none.
    """
    squares = _squares(counts, able)
    return (samples // counts.shape[1] * squares / squares.sum(dim=0).clamp_min(1)).floor().long()


def _squares(counts: Tensor, able: Tensor) -> Tensor:
    squares = counts.double().square()
    return torch.where(squares.sum(dim=0) == 0, able.double(), squares)


def enough_by_label(counts: Tensor) -> int:
    """The least number of images of which `shares_by_label` asks some decoder for one."""
    return math.ceil(counts.sum() / counts.max())


def enough_by_squares(counts: Tensor, able: Tensor) -> int:
    """The least number of images of which `shares_by_squares` asks some decoder for one."""
    squares = _squares(counts, able)
    return counts.shape[1] * math.ceil((squares.sum(dim=0) / squares).nan_to_num(torch.inf).min())


def shares_drawn(counts: Tensor, samples: int, rng: torch.Generator) -> Tensor:
    """FEDCVAE: decoder k draws `n_k / n` of the images (the last one the rest), labels by its own distribution."""
    sizes = counts.sum(dim=1) * samples // counts.sum()
    sizes[-1] += samples - sizes.sum()
    return torch.stack([_drawn(own, int(size), rng) for own, size in zip(counts, sizes, strict=True)])


def _drawn(counts: Tensor, size: int, rng: torch.Generator) -> Tensor:
    """`size` labels by their counts `[c]`, counted; of few images a small client's share may be none."""
    if size == 0:
        return torch.zeros_like(counts)
    return torch.multinomial(counts.double(), size, replacement=True, generator=rng).bincount(minlength=len(counts))


def draw_noise(count: int, latent: int, bound: float | None, rng: torch.Generator) -> Tensor:
    """N(0, 1) `[count, latent]`, with a `bound` cut off there on both sides (and not rescaled)."""
    z = torch.empty(count, latent)
    if bound is None:
        return z.normal_(generator=rng)
    return nn.init.trunc_normal_(z, a=-bound, b=bound, generator=rng)


@torch.no_grad()
def draw(decoder: nn.Module, labels: Tensor, noise: Tensor, *, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Noise `[n, latent]`, labels `[n]` and what the decoder draws of them `[n, C, H, W]`, on its device.

    Args:
        size: pixels a side, by which it draws piece by piece.
    """
    device = place_of(decoder.eval())
    noise, labels = noise.to(device), labels.to(device)
    pieces = zip(in_pieces(noise, size), in_pieces(labels, size), strict=True)
    return noise, labels, torch.cat([decoder(*piece) for piece in pieces])


@torch.no_grad()
def flaw_of_drawn(decoder: nn.Module, latent: int, classes: Sequence[int], size: int) -> str | None:
    """What is wrong with an image of each of these classes that a decoder draws; None where nothing is.

    Args:
        decoder: in evaluation mode.
        latent: length of the noise that it draws from.
        classes: one image is drawn of each.
        size: pixels a side.
    """
    rng, pieces = torch_generator(0, "gate", "noise"), in_pieces(torch.tensor(classes), size)
    drawn = (decoder(torch.randn(len(piece), latent, generator=rng), piece) for piece in pieces)
    return next((wrong for images in drawn if (wrong := drawn_wrong(images))), None)


class DecoderSource(nn.Module):
    """All images at once: every decoder draws its share.

    Args:
        server: with the decoders.
        samples: how many in all, before any filter.
        split: who draws how many of which class: `label_distribution`, `squared_counts`, `categorical`.
        bound: of the noise; None for none.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"decoders"})
    drawn_by: ClassVar[str] = "samples"
    """The setting that says how many images the clients' decoders draw."""
    counted_by: ClassVar[str] = "samples"
    optimizer: OptimizerFactory | None = None
    reset = False

    def __init__(self, server: Server, *, samples: Images, split: Split, bound: Positive | None) -> None:
        super().__init__()
        self.decoders, self.spec = server.uploads.decoders, server.spec
        self.from_clients, self.split, self.bound = samples, split, bound

    def begin(self, rng: torch.Generator) -> None:
        """Nothing to draw."""

    def make(self, turn: Turn) -> Made:
        """All of them with the labels that they were drawn for."""
        _, labels, images = zip(*self.draws(turn.rng), strict=True)
        return Made(self.spec.normalise(torch.cat(images)), torch.cat(labels))

    def draws(self, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Every decoder's share: noise `[n, latent]`, labels `[n]`, images `[n, C, H, W]` in [0, 1].

        Raises:
            OneshotError: all shares round to none, or a decoder draws no pixels.
        """
        for decoder, share in zip(self.decoders, self._shares(rng), strict=True):
            labels = torch.arange(len(share)).repeat_interleave(share)
            noise = draw_noise(len(labels), decoder.latent, self.bound, rng)
            drawn = draw(decoder.model, labels, noise, size=self.spec.size)
            if len(labels) and (wrong := drawn_wrong(drawn[2])):
                raise OneshotError(f"{decoder.name}: {wrong}, or leave it out")
            yield drawn

    def _shares(self, rng: torch.Generator) -> Tensor:
        counts = torch.stack([decoder.label_counts for decoder in self.decoders])
        if self.split == "categorical":
            return shares_drawn(counts, self.from_clients, rng)
        if self.split == "label_distribution":
            return self._some(shares_by_label(counts, self.from_clients), enough_by_label(counts))
        able = known_classes(self.decoders, self.spec.classes)
        return self._some(shares_by_squares(counts, self.from_clients, able), enough_by_squares(counts, able))

    def _some(self, shares: Tensor, enough: int) -> Tensor:
        """Shares that are not all none."""
        if not shares.any():
            raise OneshotError(
                f"method.source.{self.drawn_by}={self.from_clients}: too few images, every decoder's share of every "
                f"class rounds to none; set at least {enough}, which makes the first, or split=categorical"
            )
        return shares
