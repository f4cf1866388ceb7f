"""A model that was built from its file, tried on images of nothing: does it do what the file says?"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError, named_line
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.trial import answered

COUNTS = {2: ("two images", ""), 1: ("one image", ", one at a time")}
"""How many images a model is asked about, and in words: one alone shows what drops a batch's axis, as `.squeeze()`."""


@torch.no_grad()
def require_runs(model: nn.Module, told: ModelDescription, known: Sequence[Architecture], name: str) -> None:
    """Whether a model takes its images, or makes them, two and one of them, and answers in the shape that it should.

    Args:
        model: in evaluation mode.
        told: what its file says.
        known: the architectures that the file names; only a decoder's is looked at.
        name: what errors call the file.

    Raises:
        OneshotError: it does not.
    """
    spec, classifies = told.spec, told.kind == "classifier"
    image = (spec.channels, spec.size, spec.size)
    for count, (images, alone) in COUNTS.items():
        wanted = (count, spec.classes) if classifies else (count, *image)
        try:
            answer = (
                answered(model, torch.zeros(count, *image), name)
                if classifies
                else _drawn(model, known[0], spec, count)
            )
        except OneshotError:
            raise
        except Exception as error:  # whatever a model raises over its images is its answer
            raise OneshotError(
                f"{name}: its model does not run on {spec.channels}x{spec.size}x{spec.size} images{alone} "
                f"({named_line(error)})"
            ) from error
        if not isinstance(answer, Tensor) or tuple(answer.shape) != wanted or not answer.is_floating_point():
            shape = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise OneshotError(f"{name}: its model answers {images} with {shape}, not {wanted}")


def require_teaches(model: nn.Module, told: ModelDescription, name: str) -> None:
    """Whether a classifier answers with logits, and says in which direction images would have to change them.

    A server takes its answers for logits, and inverts it.

    Args:
        model: in evaluation mode; one that is no classifier is not asked.
        told: what its file says.
        name: what errors call the file.

    Raises:
        OneshotError: it does not.
    """
    if told.kind != "classifier":
        return
    spec = told.spec
    images = torch.zeros(2, spec.channels, spec.size, spec.size, requires_grad=True)
    try:
        with torch.enable_grad():
            answer = model(images)
            (gradient,) = (
                torch.autograd.grad(answer.sum(), images, allow_unused=True) if answer.requires_grad else [None]
            )
    except Exception as error:  # whatever a model raises is its answer
        raise OneshotError(f"{name}: cannot be asked for gradients ({named_line(error)})") from error
    if gradient is None:
        raise OneshotError(
            f"{name}: its answers have no gradient, and a server inverts it; leave torch.no_grad() and .detach() out "
            "of its forward"
        )
    if bool((answer >= 0).all()) and torch.allclose(answer.sum(dim=1), torch.ones(2), atol=1e-4):
        raise OneshotError(f"{name}: answers with probabilities instead of logits; leave the softmax at its end out")


def _drawn(model: nn.Module, architecture: Architecture, spec: DataSpec, count: int) -> Tensor:
    return model(torch.zeros(count, latent_of(architecture, spec)), torch.zeros(count, dtype=torch.long))


def latent_of(architecture: Architecture, spec: DataSpec) -> int:
    """How many numbers a decoder of a VAE draws an image from."""
    with torch.device("meta"):
        return architecture.build(spec).latent  # type: ignore[return-value]  # a `CVAE`
