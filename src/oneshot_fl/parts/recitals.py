"""What every client's model recites of what it knows, as images for the student."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.models.place import place_of
from oneshot_fl.parts.procedural import dead_leaves, shapes, textures
from oneshot_fl.parts.slots import Made, Turn
from oneshot_fl.parts.uploads import Recital, Server
from oneshot_fl.parts.view import in_pieces

SHOWN = 2000
"""Images that a client's model is shown."""
DOUBTED = 2**-10
"""Trust in a label that an image was made for and does not show; 0 would say that nobody knows what it was made for."""
Start = Literal["noise", "drawings"]
"""What the images of a recital begin as."""


class RecitalSource(nn.Module):
    """The images that each client's model alone was inverted to (`phases.recite`), with the labels they were made for.

    Nothing is generated here: the recitals are made once an upload and shared by all methods that ask for them. The
    label of an image is trusted where the client that recites it says it too, else doubted.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "recitals"})
    optimizer: OptimizerFactory | None = None
    reset = False

    def __init__(self, server: Server) -> None:
        super().__init__()
        if server.recitals is None:
            raise ValueError("recitals are declared as a need and have to be there")
        self.recitals, self.spec = server.recitals, server.spec
        self.reciters: list[nn.Module] = server.uploads.models  # a list: they belong to the bank, not to its state

    def begin(self, rng: torch.Generator) -> None:
        """Nothing to draw."""

    def make(self, turn: Turn) -> Made:
        """All of them, client by client."""
        each = zip(self.reciters, self.recitals, strict=True)
        trust = [shown(model, recital, self.spec).float().clamp_min(DOUBTED) for model, recital in each]
        images = torch.cat([recital.images for recital in self.recitals])
        labels = torch.cat([recital.labels for recital in self.recitals])
        return Made(self.spec.to_input(images), labels, torch.cat(trust))


@torch.no_grad()
def said(model: nn.Module, images: Tensor, spec: DataSpec) -> Tensor:
    """A client's logits on recited images, uint8 `[n, C, H, W]`: in single precision and on the CPU, `[n, c]`."""
    device, parts = place_of(model), in_pieces(images, images.shape[-1])
    return torch.cat([model.eval()(spec.to_input(part.to(device))).float().cpu() for part in parts])


def shown(reciter: nn.Module, recital: Recital, spec: DataSpec) -> Tensor:
    """Which images of a recital the client that recites them takes for their label, bool `[n]`.

    The statistics of deep networks can outweigh their labels (Eqs. 2 and 3 of FedChorus), and what was trained too
    little or without batch normalisation may not know what it recites.
    """
    return said(reciter, recital.images, spec).argmax(dim=1) == recital.labels


@torch.no_grad()
def shown_label_shares(model: nn.Module, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """A client's label distribution `[c]` as its model shows it: its mean prediction on images of no data set.

    What it never saw is left out there, because nothing ever spoke for that class. How near this comes is in
    docs/results/fedchorus-development.md. The model answers in evaluation mode, and is left in it: in the other one,
    looking at drawings would move its BN statistics.
    """
    model.eval()
    images = spec.normalise(shapes(SHOWN, spec, rng))
    device, parts = place_of(model), in_pieces(images, spec.size)
    return torch.cat([model(part.to(device)).softmax(dim=1) for part in parts]).mean(dim=0).cpu()


def drawings(count: int, spec: DataSpec, rng: torch.Generator) -> Tensor:
    """Dead leaves, in colour with the spectrum of photographs: pixels in [0, 1], `[count, C, H, W]`."""
    return (dead_leaves if spec.grey else textures)(count, spec, rng)


def shaken(images: Tensor, most: int, rng: torch.Generator, *, mirrored: bool) -> Tensor:
    """Images `[b, C, H, W]` rolled by up to `most` pixels either way, and mirrored or not where `mirrored` allows.

    All of them alike. What a client is to know again wherever it stands cannot hang on single pixels.
    """
    down, right = torch.randint(-most, most + 1, (2,), generator=rng).tolist()
    rolled = images.roll((down, right), dims=(2, 3))
    return rolled.flip(3) if mirrored and torch.rand((), generator=rng) < 0.5 else rolled
