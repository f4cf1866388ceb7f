"""Whether models would fit images: they are built on torch's `meta` device, which allocates nothing, and asked once."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError, named_line, one_line
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.bank import has_features
from oneshot_fl.models.memory import memory_here
from oneshot_fl.models.structure import noted
from oneshot_fl.process import say
from oneshot_fl.seeds import torch_generator

OTHERWISE = (
    "answers the same images otherwise every time, also in evaluation mode; give what its forward draws self.training, "
    "as F.dropout(x, p, self.training)"
)
NO_GRADIENT = "leave torch.no_grad() and .detach() out of its forward"
SAME_NUMBERS = {"Alias", "Clone", "Reshape", "Slice", "Squeeze", "ToCopy", "Unsqueeze", "View"}
"""Steps of torch's graphs that compute nothing."""
NO_LOGITS = "answers with probabilities instead of logits; leave the softmax or sigmoid at its end out"


def check_models(architectures: Iterable[Architecture], spec: DataSpec) -> None:
    """Whether each can be made for images that are there now, and answers; somebody else's is made and asked indeed.

    A line tells of one whose answers hold for the batch alone.

    Raises:
        OneshotError: naming what cannot, or what is larger than this machine's memory.
    """
    for each in {str(each.recipe.settings): each for each in architectures}.values():
        try_model(each.name, each.build, spec)
        if each.is_foreign:
            _require_logits(each, spec)


def try_model(
    name: str, build: Callable[[DataSpec], Any], spec: DataSpec, *, answers: bool = True, certain: bool = True
) -> nn.Module | None:
    """A model without numbers, made for images of this spec; None where that tells nothing.

    Args:
        name: what errors call it.
        build: makes it.
        spec: of the images.
        answers: whether a classifier is asked too.
        certain: whether `spec` is that of the images; one that is guessed says nothing of what cannot be built for it.

    Raises:
        OneshotError: it cannot be made or does not answer as a classifier, or is larger than this machine's memory.
    """
    shape = f"{spec.channels}x{spec.size}x{spec.size}"
    try:
        with warnings.catch_warnings(action="ignore"), torch.device("meta"):
            model: nn.Module = build(spec)
            _require_plain(model, name)
            _require_single_precision(model, name)
            count = sum(parameter.numel() for parameter in model.parameters())
            check_memory(f"{name}: {count:,} parameters", None, 4 * count)
            asked = answers and _is_classifier(model)
            answer = answered(model, torch.zeros(2, spec.channels, spec.size, spec.size), name) if asked else None
    except OneshotError:
        raise
    except Exception as error:  # whatever an architecture raises is its answer to these settings
        if "meta" in str(error) or not certain:  # it computes with its weights, which there are not here
            return None
        raise OneshotError(
            f"{name}: cannot be built for {shape} images and {spec.classes} classes ({one_line(error)}); change its "
            "settings or choose another architecture"
        ) from error
    if asked:
        _require_a_number_per_class(answer, spec, name)
    return model


def require_autoencoder(model: nn.Module, name: str) -> None:
    """Whether a client can train it as a conditional VAE, and upload its decoder.

    Raises:
        OneshotError: it lacks something of that.
    """
    if lacking := [each for each in ("decoder", "latent", "loss") if not hasattr(model, each)]:
        raise OneshotError(
            f"{name}: makes a {type(model).__name__}, which is no conditional VAE (no {', '.join(lacking)}); make an "
            "oneshot_fl.models.cvae.CVAE"
        )


@torch.no_grad()
def require_all_in_state(model: nn.Module, again: nn.Module, given: Sequence[Tensor], name: str) -> None:
    """Whether a model that was built anew says what another does once it has its state, which is all that files hold.

    Nothing is said of a model that answers otherwise every time.

    Args:
        model: in evaluation mode, as `again`, which takes its state.
        again: built under another seed.
        given: what both are called with.
        name: what errors call it.

    Raises:
        OneshotError: it has numbers besides, or does not run.
    """
    try:
        lost = _is_another(model, again, lambda asked: asked(*given))
    except Exception as error:  # whatever a model raises over its images is its answer
        raise OneshotError(f"{name}: does not run on images of noise ({named_line(error)})") from error
    if lost:
        raise OneshotError(
            f"{name}: computes with numbers that are drawn when it is built and that its state_dict() lacks, so that "
            "it is another model wherever it is built anew; keep them by self.register_buffer(NAME, tensor)"
        )


@torch.no_grad()
def require_learnt_in_state(model: nn.Module, again: nn.Module, ask: Callable[[nn.Module], Tensor], name: str) -> None:
    """Whether what training made of a model is in its state: what is not stays behind where the state is sent.

    Nothing is said of a model that answers otherwise every time.

    Args:
        model: trained, in evaluation mode, as `again`, which was built anew and takes its state.
        ask: what a model answers to the same question.
        name: what errors call it.

    Raises:
        OneshotError: the other answers otherwise.
    """
    if _is_another(model, again, ask):
        raise OneshotError(
            f"{name}: training changed numbers that its state_dict() lacks, so that its upload would be another model; "
            "keep them by self.register_buffer(NAME, tensor)"
        )


def _is_another(model: nn.Module, again: nn.Module, ask: Callable[[nn.Module], Tensor]) -> bool:
    """Whether `again` answers otherwise once it has the model's state, and the model itself alike every time."""
    again.load_state_dict(model.state_dict())
    one, same, other = ask(model), ask(model), ask(again)
    return alike(one, same) and not alike(one, other)


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether two answers to the same question are the same but for rounding; what is no number is like itself.

    Numbers near zero are rounded as the largest are.
    """
    largest = float(one.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5 * largest, equal_nan=True)


@torch.no_grad()
def _require_logits(architecture: Architecture, spec: DataSpec) -> None:
    """Losses and ensembles take what a classifier answers for logits, and never notice that it is something else."""
    name, model = architecture.name, architecture.student(spec, seed=0).eval()
    if not _is_classifier(model):
        return
    blank = torch.zeros(2, spec.channels, spec.size, spec.size)
    _require_to_run(model, blank, spec, name)
    _require_trainable_logits(model, blank, name)
    drawn = torch.rand(blank.shape, generator=torch_generator(0, "trial"))
    require_all_in_state(model, architecture.student(spec, seed=1).eval(), [drawn], name)
    if not alike(model(drawn), model(drawn)):
        raise OneshotError(f"{name}: {OTHERWISE}")
    tell_of_batches(model, drawn, name)


@torch.no_grad()
def tell_of_batches(model: nn.Module, images: Tensor, name: str) -> None:
    """A line where a model in evaluation mode says of images `[b, C, H, W]`, one by one, what it does not of all."""
    if not alike(torch.cat([model(image) for image in images.split(1)]), model(images)):
        say(
            f"{name}: answers an image otherwise beside others, as batch normalisation without running statistics "
            "does: what it says of one, and its accuracy, hang on which are shown at once (evaluate.batch_size)"
        )


def _require_to_run(model: nn.Module, images: Tensor, spec: DataSpec, name: str) -> None:
    """On two images, and on one, which shows what drops a batch's axis."""
    try:
        answers = {count: answered(model, images[:count], name) for count in (2, 1)}
    except OneshotError:
        raise
    except Exception as error:  # whatever a model raises over its images is its answer
        raise OneshotError(f"{name}: does not run on {tuple(images.shape)} ({named_line(error)})") from error
    for count, answer in answers.items():
        _require_a_number_per_class(answer, spec, name, count=count)


@torch.enable_grad()
def _require_trainable_logits(model: nn.Module, images: Tensor, name: str) -> None:
    """Both show in the graph of an answer."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise OneshotError(f"{name}: has no weight that is trained; leave requires_grad_(False) out for some")
    answer = model(images)
    if not answer.requires_grad:
        raise OneshotError(f"{name}: its answers have no gradient, so that nothing of it can be trained; {NO_GRADIENT}")
    if are_probabilities(answer):
        raise OneshotError(f"{name}: {NO_LOGITS}")


def _require_a_number_per_class(answer: Any, spec: DataSpec, name: str, *, count: int = 2) -> None:
    """Of a model's answer to so many images."""
    if (own := getattr(answer, "shape", None)) != (count, spec.classes):
        told = f"a {type(answer).__name__}" if own is None else f"shape {[*own]}"
        asked = "one image" if count == 1 else f"{count} images"
        raise OneshotError(
            f"{name}: is no classifier, it does not answer with one number per class: to {asked} of {spec.classes} "
            f"classes with {told}"
        )


def are_probabilities(answer: Tensor) -> bool:
    """Whether answers `[b, c]` are what a softmax leaves, none below zero and one in all, or what a sigmoid does.

    Logits may lie between 0 and 1 as well, so that a sigmoid shows by its step in the graph alone.

    Args:
        answer: as the model computed it, with its graph.
    """
    sums = answer.sum(dim=1)
    of_softmax = bool((answer >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4)
    return of_softmax or _last_step(answer) in ("SigmoidBackward0", "HardsigmoidBackward0")


def _last_step(answer: Tensor) -> str:
    """The last step of its graph that is more than another shape or type of the same numbers; empty without a graph."""
    step: Any = answer.grad_fn
    while step is not None and step.name().rpartition("Backward")[0] in SAME_NUMBERS:
        step = step.next_functions[0][0]
    return "" if step is None else str(step.name())


def _require_plain(model: nn.Module, name: str) -> None:
    """A module in Python with tensors in its state: others cannot be copied, compared, counted or written to a file."""
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"):
        raise OneshotError(f"{name}: is what torch.jit or torch.compile made of a module; build the module itself")
    if other := [key for key, value in model.state_dict().items() if not isinstance(value, Tensor)]:
        raise OneshotError(
            f"{name}: keeps {other[0]} in its state, which is no tensor, and files of models hold tensors alone; leave "
            "it out of get_extra_state, or keep it as an attribute that its settings say"
        )


def _require_single_precision(model: nn.Module, name: str) -> None:
    """Images are in it; which precision products compute in is the Trainer's matter."""
    for key, tensor in model.named_parameters():
        if tensor.is_complex():
            raise OneshotError(
                f"{name}: {key} is of {tensor.dtype}, and images of torch.float32; keep its real and imaginary parts, "
                "which torch.view_as_complex joins"
            )
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise OneshotError(
                f"{name}: {key} is of {tensor.dtype}, and images of torch.float32; build it in that, trainer.precision "
                "says what products compute in"
            )


def runs_a_linear_layer(model: nn.Module, spec: DataSpec) -> bool:
    """Whether one runs when a classifier without numbers (`try_model`) is asked: what enters the last are features."""
    with torch.device("meta"):
        return has_features(model, spec)


def answered(model: nn.Module, images: Tensor, name: str) -> Any:
    """What a model says to images, which stay as they were: others are shown the same ones; its notes are told apart.

    Raises:
        OneshotError: it changed them.
    """
    before = images._version
    with noted(model):
        answer = model(images)
    if images._version != before:
        raise OneshotError(
            f"{name}: changes the images that it is given, which other models see too; let it compute on copies, "
            "x = x - mean and not x.sub_(mean) or x -= mean"
        )
    return answer


def _is_classifier(model: Any) -> bool:
    """Not a generator, which has noise of its own, nor a VAE, which has a latent space."""
    return not hasattr(model, "sample_noise") and not hasattr(model, "latent")


def check_memory(key: str, value: Any, needed: int) -> None:
    """Whether so many bytes, for a key's value or for what its name says, are less than the memory here.

    Raises:
        OneshotError: they are not.
    """
    if needed > (there := memory_here()):
        given = key if value is None else f"{key}={value}"
        raise OneshotError(
            f"{given}: would need {math.ceil(needed / 1e9):,} GB at the least, and there are "
            f"{there // 10**9:,} GB of memory here; lower it"
        )
