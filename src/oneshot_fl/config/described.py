"""From what a model file says to the model: which architectures are built, and how large they may be.

A file names code. By default only our own builders of architectures run; any other function or class is imported only
where the owner of this machine has allowed exactly that name. Arguments are held against the signature, and the model
is first built on torch's `meta` device, which allocates nothing, and compared with the tensors of the file.
"""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn

from oneshot_fl.artifacts import load_model
from oneshot_fl.config.compose import architecture as chosen
from oneshot_fl.config.compose import plain
from oneshot_fl.config.rules import check_call, target_of
from oneshot_fl.errors import OneshotError, named_line
from oneshot_fl.fits import problem, shown
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import Layout, ModelFile
from oneshot_fl.models.per_architecture import together
from oneshot_fl.recipe import Recipe
from oneshot_fl.seeds import seeded
from oneshot_fl.values import Count

CLASSIFIERS = frozenset(
    {
        *(f"oneshot_fl.models.classifiers.{name}" for name in ("cnn1", "cnn2", "cnn2_torch", "cnn3", "lenet5", "vgg9")),
        *(f"oneshot_fl.models.classifiers.{name}" for name in ("fedmho_cnn", "fedcvae_cnn")),
        *(f"oneshot_fl.models.group_norm.{name}" for name in ("cnn2_group", "cnn3_group")),
        *(f"oneshot_fl.models.zoo.{name}" for name in ("resnet", "vgg11", "from_torchvision")),
    }
)
"""Our builders of classifiers."""
AUTOENCODERS = frozenset(f"oneshot_fl.models.cvae.{name}" for name in ("mlp", "conv", "large", "fedcvae"))
"""Our builders of conditional VAEs, of which a file holds the decoder."""
SWITCHES = frozenset({"aux_logits", "init_weights"})
"""Besides the arguments that our builders name: what a file may hand through them to torchvision."""


def build(
    description: ModelDescription,
    *,
    allow: Collection[str] = (),
    source: str = "the model",
    layout: Layout | None = None,
) -> nn.Module:
    """The model that a file describes, with weights that mean nothing yet: a classifier, or a decoder.

    Args:
        description: what the file says.
        allow: names of functions or classes that are imported although they are not ours; one of ours that is named
            here takes every argument.
        source: what errors call the file.
        layout: of the file's tensors; nothing is allocated where the model's are others.

    Raises:
        OneshotError: an architecture is not allowed or cannot be built, or its tensors are not those of the file.
    """
    make = partial(_make, description, architectures(description, allow=allow, source=source), source)
    with seeded(0, "model file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _refused_as_line(lambda: _within(layout, make, source), source)


def load(file: ModelFile, *, allow: Collection[str] = ()) -> nn.Module:
    """The model of a file with its weights, in evaluation mode.

    Raises:
        OneshotError: it cannot be built, or the tensors do not fit it or are not finite.
    """
    model = build(file.description, allow=allow, source=file.source, layout=file.layout)
    return load_model(model, file.tensors(), file.source).eval()


def rebuilt(description: ModelDescription, known: Sequence[Architecture], source: str) -> nn.Module:
    """The model that a file describes as somebody else would build it, in evaluation mode: without the file's weights.

    Args:
        known: the architectures that the file names.
    """
    with seeded(1, "model file"), warnings.catch_warnings(action="ignore"):
        return _make(description, known, source).eval()


def architectures(
    description: ModelDescription, *, allow: Collection[str] = (), source: str = "the model"
) -> tuple[Architecture, ...]:
    """The architectures that a file names, each checked and waiting for a `DataSpec`.

    Raises:
        OneshotError: one is not allowed, there is no such one, or it does not take the arguments.
    """
    ours = CLASSIFIERS if description.kind == "classifier" else AUTOENCODERS
    group = "model" if description.kind == "classifier" else "cvae"
    names = {allow} if isinstance(allow, str) else allow  # a text is one name: what is inside it is not allowed
    return tuple(
        Architecture(_recipe(_settings(one, group, source), ours, names, source)) for one in description.architectures
    )


def _settings(told: Mapping[str, Any], group: str, source: str) -> dict[str, Any]:
    """Target and arguments; of a name alone those of the choice in conf/."""
    if "_target_" in told:
        return {"name": str(told["_target_"]).rpartition(".")[2], **told}
    try:
        return dict(plain(chosen(told["name"], group)))
    except OneshotError as error:
        raise OneshotError(f"{source}: {error}") from error


def _recipe(
    settings: Mapping[str, Any], ours: Collection[str], allow: Collection[str], source: str
) -> Recipe[nn.Module]:
    name = str(settings["_target_"])
    if name not in ours and name not in allow:
        raise OneshotError(
            f"{source}: its architecture is {shown(name)}, which is not one of ours and not allowed here; where you "
            f"trust that code, --allow {shown(name)}"
        )
    key = f"{source}: architecture"
    check_call(key, settings, given=("spec",), typed="--arg ")  # of `oneshot-fl pack`, which wrote them into the file
    target = target_of(key, settings)
    arguments = {each: value for each, value in settings.items() if each not in ("_target_", "name")}
    taken = signature(target).parameters
    if name not in allow and (extra := arguments.keys() - taken.keys() - SWITCHES):
        raise OneshotError(
            f"{key}.{sorted(extra)[0]}: is no argument that a file may set; where you trust that file, --allow {name}"
        )
    make = partial(target, **arguments)
    return Recipe(dict(settings), target, make if "spec" in taken else _without_spec(make))


def _without_spec(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Somebody else's builder, whose arguments say all."""
    return lambda spec: make()


def _make(description: ModelDescription, chosen: Sequence[Architecture], source: str) -> nn.Module:
    """All of them together, or the decoder of the only one."""
    model = together([one.build(description.spec) for one in chosen])
    return model if description.kind == "classifier" else _decoder_of(model, source)


def _decoder_of(vae: nn.Module, source: str) -> nn.Module:
    decoder, latent = getattr(vae, "decoder", None), getattr(vae, "latent", None)
    if not isinstance(decoder, nn.Module) or problem(latent, Count):
        lacking = "latent, the length of its noise" if isinstance(decoder, nn.Module) else "decoder"
        raise OneshotError(
            f"{source}: its architecture makes a {type(vae).__name__}, which is no conditional VAE (no {lacking}); "
            "name what makes the whole VAE, although the file holds its decoder alone (docs/howto/upload-format.md)"
        )
    return decoder


def _within(layout: Layout | None, make: Callable[[], nn.Module], source: str) -> nn.Module:
    """The model, once its tensors are known to be those of the file."""
    if layout is not None:
        try:
            with torch.device("meta"):
                state = make().state_dict()
        except (RuntimeError, NotImplementedError) as error:
            if "meta" not in str(error):
                raise
        else:  # a model that computes with its weights while it is built cannot be looked at beforehand
            _compare({name: (each.dtype, tuple(each.shape)) for name, each in state.items()}, layout, source)
    return make()


def _compare(expected: Layout, given: Layout, source: str) -> None:
    for name in sorted(expected.keys() ^ given.keys()):
        whole = "; a decoder's file holds decoder.state_dict()" * (
            name.removeprefix("decoder.") in expected.keys() - {name}
        )
        raise OneshotError(
            f"{source}: tensor {shown(name)} is {'missing' if name in expected else 'unexpected'}{whole}"
        )
    for name, wanted in expected.items():
        if given[name] != wanted:
            cast = f"; save it as {wanted[0]}" * (given[name][1:] == wanted[1:])
            raise OneshotError(f"{source}: tensor {name} is {_shown(given[name])}, expected {_shown(wanted)}{cast}")


def _shown(told: tuple[torch.dtype, tuple[int, ...]]) -> str:
    return f"{told[0]} {told[1]}"


def _refused_as_line(make: Callable[[], nn.Module], source: str) -> nn.Module:
    try:
        model = make()
    except OneshotError:
        raise
    except (Exception, SystemExit) as error:  # whatever a builder raises is its answer to these arguments
        raise OneshotError(f"{source}: its architecture cannot be built ({named_line(error)})") from error
    if not isinstance(model, nn.Module):
        raise OneshotError(f"{source}: its architecture makes no torch module, but {type(model).__name__}")
    return model
