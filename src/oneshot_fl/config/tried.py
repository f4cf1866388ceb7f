"""A model that was built from its file, tried on images of nothing: does it do what the file says?"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oneshot_fl.config.described import rebuilt
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError, named_line
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.memory import bytes_held, memory_here
from oneshot_fl.models.trial import (
    NO_GRADIENT,
    NO_LOGITS,
    OTHERWISE,
    alike,
    answered,
    are_probabilities,
    require_all_in_state,
    tell_of_batches,
)
from oneshot_fl.parts.decoders import flaw_of_drawn
from oneshot_fl.seeds import seeded, torch_generator

COUNTS = {2: ("two images", ""), 1: ("one image", ", one at a time")}
"""How many images a model is asked about, and in words: one alone shows what drops a batch's axis, as `.squeeze()`."""

CLASSES = "class_names"
"""What names the classes in a model's file."""


def require_upload(
    model: nn.Module, told: ModelDescription, known: Sequence[Architecture], name: str, *, classes: str = CLASSES
) -> None:
    """All that a server asks of an upload's model before it is used; the arguments are those of `require_runs`.

    Raises:
        OneshotError: it would fill the memory, does not run, or cannot be learnt from.
    """
    require_memory(model, told, known, name, gradients=True)
    require_runs(model, told, known, name, classes=classes)
    require_whole(model, told, known, name)
    require_teaches(model, told, name)


def require_memory(
    model: nn.Module, told: ModelDescription, known: Sequence[Architecture], name: str, *, gradients: bool
) -> None:
    """Whether a model can be tried without filling the memory: a small file can claim large images.

    Nothing is computed for it, so it comes before the model is asked anything. Half of the memory is left for what
    layers need while they compute, which nobody sees beforehand, and for all else.

    Args:
        model: in evaluation mode.
        told: what its file says.
        known: the architectures that the file names; only a decoder's is looked at.
        name: what errors call the file.
        gradients: whether a classifier will be asked for the gradients of its images too.

    Raises:
        OneshotError: it would need more.
    """
    spec, inverted = told.spec, gradients and told.kind == "classifier"
    given = [each.requires_grad_(inverted) for each in inputs_of(told, known, max(COUNTS))]
    with torch.set_grad_enabled(inverted):
        needed, there = bytes_held(model, *given), memory_here()
    if needed > there / 2:
        raise OneshotError(
            f"{name}: its model needs {needed / 1e9:.1f} GB for {len(given[0])} images of "
            f"{spec.channels}x{spec.size}x{spec.size}, more than half of the {there / 1e9:.1f} GB here; let it "
            "take smaller images"
        )


@torch.no_grad()
def require_runs(
    model: nn.Module, told: ModelDescription, known: Sequence[Architecture], name: str, *, classes: str = CLASSES
) -> None:
    """Whether a model takes its images, or makes them, two and one of them, and answers in the shape that it should.

    A line tells of one whose answers hold for the batch alone.

    Args:
        model: in evaluation mode.
        told: what its file says.
        known: the architectures that the file names; only a decoder's is looked at.
        name: what errors call the file.
        classes: the key or option by which the classes were named, for errors.

    Raises:
        OneshotError: it does not.
    """
    spec, classifies = told.spec, told.kind == "classifier"
    image = (spec.channels, spec.size, spec.size)
    most = inputs_of(told, known, max(COUNTS))
    for count, (images, alone) in COUNTS.items():
        wanted = (count, spec.classes) if classifies else (count, *image)
        given = [each[:count] for each in most]
        try:
            answer = answered(model, given[0], name) if classifies else model(*given)
        except OneshotError:
            raise
        except Exception as error:  # whatever a model raises over its images is its answer
            raise OneshotError(
                f"{name}: its model does not run on {spec.channels}x{spec.size}x{spec.size} images{alone} "
                f"({named_line(error)})"
            ) from error
        if not isinstance(answer, Tensor) or tuple(answer.shape) != wanted or not answer.is_floating_point():
            shape = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            counted = _other_count(shape, wanted, classes)
            raise OneshotError(f"{name}: its model answers {images} with {shape}, not {wanted}{counted}")
        if classifies and not alike(model(given[0]), answer):
            raise OneshotError(f"{name}: its model {OTHERWISE}")
    if not classifies:
        _require_draws(model, latent=most[0].shape[1], spec=spec, name=name)
    elif any(each.is_foreign for each in known):  # ours do not, nor do torchvision's
        (drawn,) = inputs_of(told, known, max(COUNTS), drawn=True)
        tell_of_batches(model, drawn, name)


def _require_draws(decoder: nn.Module, *, latent: int, spec: DataSpec, name: str) -> None:
    try:
        wrong = flaw_of_drawn(decoder, latent, range(spec.classes), spec.size)
    except Exception as error:  # whatever a model raises over a class is its answer
        raise OneshotError(f"{name}: cannot be asked for every class ({named_line(error)})") from error
    if wrong:
        raise OneshotError(f"{name}: {wrong}")


def require_whole(model: nn.Module, told: ModelDescription, known: Sequence[Architecture], name: str) -> None:
    """Whether a file holds all that a model computes with; the arguments are those of `require_runs`.

    Raises:
        OneshotError: it does not.
    """
    if any(each.is_foreign for each in known):  # ours keep no other numbers, nor do torchvision's
        require_all_in_state(model, rebuilt(told, known, name), inputs_of(told, known, max(COUNTS), drawn=True), name)


def _other_count(shape: tuple[int, ...] | str, wanted: tuple[int, ...], classes: str) -> str:
    """What to say where an answer `[b, c]` is of another number of classes than were named."""
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[:1] != wanted[:-1] or shape == wanted:
        return ""
    one = "; let it answer both: torch.cat([torch.zeros_like(z), z], dim=1)" if (shape[1], wanted[1]) == (1, 2) else ""
    return f"; {classes} names {wanted[1]}, the model answers {shape[1]}{one}"


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
        raise OneshotError(f"{name}: its answers have no gradient, and a server inverts it; {NO_GRADIENT}")
    if are_probabilities(answer):
        raise OneshotError(f"{name}: {NO_LOGITS}")


def inputs_of(
    told: ModelDescription, known: Sequence[Architecture], count: int, *, drawn: bool = False
) -> tuple[Tensor, ...]:
    """What a classifier or a decoder is called with: so many images, blank or `drawn`, or what to draw them from."""
    spec, rng = told.spec, torch_generator(0, "trial")
    if told.kind == "classifier":
        image = (count, spec.channels, spec.size, spec.size)
        return (torch.rand(image, generator=rng) if drawn else torch.zeros(image),)
    noise = torch.randn(count, latent_of(known[0], spec), generator=rng)
    return noise, torch.arange(count) % spec.classes


def latent_of(architecture: Architecture, spec: DataSpec) -> int:
    """How many numbers a decoder of a VAE draws an image from; somebody else's builder may compute with its weights."""
    with torch.device("cpu" if architecture.is_foreign else "meta"), seeded(0, "trial"):
        return architecture.build(spec).latent  # type: ignore[return-value]  # a `CVAE`
