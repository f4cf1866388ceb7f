"""Small tensors and what parts are made with, for tests of single modules."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.models.cvae import CVAE
from oneshot_fl.parts.uploads import ClassifierUpload, DecoderUpload, Recital, Server, Uploads
from oneshot_fl.parts.view import Votes
from oneshot_fl.phases.trainer import TrainerSettings
from oneshot_fl.recipe import Recipe

SMALL = DataSpec(1, 8, 3, (0.5,), (0.5,))
"""Grey 8x8 images of three classes."""
CPU = TrainerSettings(accelerator="cpu", precision="32-true", channels_last=True)


def recipe_of(target: Callable[..., Any], /, **settings: Any) -> Recipe[Any]:
    """The recipe that a YAML file with this target and these settings becomes."""
    named = {"_target_": f"{target.__module__}.{target.__qualname__}", **settings}
    given = {key: value for key, value in settings.items() if key != "name"}  # a label, as in `config.compose.recipe`
    return Recipe(named, target, partial(target, **given))


def uploads_of(models: Sequence[nn.Module], sizes: Sequence[int], decoders: Sequence[DecoderUpload] = ()) -> Uploads:
    """Uploads of classifiers with their numbers of samples, and of decoders."""
    sent = zip(models, sizes, [f"client {k}" for k in range(len(models))], strict=True)
    classifiers = (ClassifierUpload(model, size, name, name=name) for model, size, name in sent)
    return Uploads(tuple(replace(upload, draws=k) for k, upload in enumerate(classifiers)), tuple(decoders))


def decoder_of(vae: CVAE, label_counts: Sequence[int], *, key: str = "decoder") -> DecoderUpload:
    """The upload of a client that trained this VAE."""
    return DecoderUpload(vae.decoder, vae.latent, torch.tensor(label_counts), key, lambda: deepcopy(vae), key)


def server_of(
    models: Sequence[nn.Module] = (),
    sizes: Sequence[int] | None = None,
    *,
    spec: DataSpec = SMALL,
    decoders: Sequence[DecoderUpload] = (),
    guidance: torch.Tensor | None = None,
    proxy: torch.Tensor | None = None,
    recitals: Sequence[torch.Tensor] = (),
    label_counts: torch.Tensor | None = None,
    student: nn.Module | None = None,
    unknown: Sequence[tuple[int, ...]] = (),
) -> Server:
    """What a part is made with; clients of equal size unless told otherwise, proxy images uint8 `[n, C, H, W]`.

    Of each client's recital only the images are given: the labels go round over the classes. `unknown` are the classes
    that each client has no output for, unless all have all.
    """
    uploads = uploads_of(models, [1] * len(models) if sizes is None else sizes, decoders)
    if unknown:
        named = zip(uploads.classifiers, unknown, strict=True)
        uploads = replace(uploads, classifiers=tuple(replace(one, unknown=lacks) for one, lacks in named))
    if label_counts is not None:
        pairs = zip(uploads.classifiers, label_counts, strict=True)
        uploads = replace(uploads, classifiers=tuple(replace(one, label_counts=counts) for one, counts in pairs))
    made = tuple(
        Recital(each, torch.arange(len(each)) % spec.classes, f"recital {k}") for k, each in enumerate(recitals)
    )
    return Server(spec, uploads, guidance, None if proxy is None else Proxy(lambda: proxy), made or None, student)


def votes_of(P: torch.Tensor, y: torch.Tensor | None = None, features: Sequence[torch.Tensor] = ()) -> Votes:
    """Client logits `[m, b, c]` on black images, made for label 0 unless told otherwise."""
    labels = torch.zeros(P.shape[1], dtype=torch.long) if y is None else y
    return Votes(torch.zeros(P.shape[1], 1, 1, 1), labels, P, list(features))


class Momentum(torch.optim.Optimizer):
    """SGD whose momentum lies beside its `state`."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.m: dict[Any, Any] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for each in group["params"]:
                self.m[each] = 0.9 * self.m.get(each, 0) + each.grad
                each.sub_(group["lr"] * self.m[each])


class FixedLogits(nn.Module):
    """A 'model' that answers every image with the same logits."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(x), -1)
