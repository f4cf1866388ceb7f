"""Fixtures that every kind of test shares: a tiny real run, and small tensors."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from torch import nn

from oneshot_fl.config import experiment_of
from oneshot_fl.config.checks import source_needs
from oneshot_fl.config.compose import config_dir
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.models.cvae import CVAE
from oneshot_fl.parts.uploads import ClassifierUpload, DecoderUpload, Recital, Server, Uploads
from oneshot_fl.parts.view import Votes
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.trainer import TrainerSettings
from oneshot_fl.pipeline import run
from oneshot_fl.recipe import Recipe
from oneshot_fl.store import Store
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress
from tests.unit.data.image_files import write_image

TINY = (
    "clients.epochs=2",
    "clients.batch_size=64",
    "clients.cvae.epochs=1",
    "recite.images=16",
    "recite.batch_size=8",
    "recite.steps=2",
    "stratify.steps=2",
    "stratify.batch_size=16",
    "distill.rounds=3",
    "distill.generator_steps=2",
    "distill.batch_size=32",
    "generator.width=4",
    "generator.noise=16",
    "trainer=cpu",
)
"""Overrides that make a run on the digits take seconds."""


@cache
def clients_of(method: str) -> tuple[str, ...]:
    """The clients that a method needs, where the default ones will not do: some with a VAE, if it works on decoders."""
    needs = source_needs(compose_config(f"method={method}"))
    return ("clients=half_cvae",) if "decoders" in needs else ()


def compose_config(*overrides: str) -> DictConfig:
    """The program's own configuration with overrides."""
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        return compose("config", overrides=list(overrides))


SMALL = DataSpec(1, 8, 3, (0.5,), (0.5,))
"""Grey 8x8 images of three classes."""
CPU = TrainerSettings(accelerator="cpu", precision="32-true", channels_last=True)


def run_config(cfg: DictConfig, folder: Path) -> dict[str, Any]:
    """What `python -m oneshot_fl` does with a composed configuration; the summary."""
    return run(experiment_of(cfg), folder)


def recipe_of(target: Callable[..., Any], **settings: Any) -> Recipe[Any]:
    """The recipe that a YAML file with this target and these settings becomes."""
    named = {"_target_": f"{target.__module__}.{target.__qualname__}", **settings}
    given = {key: value for key, value in settings.items() if key != "name"}  # a label, as in `config.compose.recipe`
    return Recipe(named, target, partial(target, **given))


def uploads_of(models: Sequence[nn.Module], sizes: Sequence[int], decoders: Sequence[DecoderUpload] = ()) -> Uploads:
    """Uploads of classifiers with their numbers of samples, and of decoders."""
    pairs = zip(models, sizes, strict=True)
    classifiers = tuple(ClassifierUpload(model, size, key=f"client {k}") for k, (model, size) in enumerate(pairs))
    return Uploads(classifiers, tuple(decoders))


def decoder_of(vae: CVAE, label_counts: Sequence[int], *, key: str = "decoder") -> DecoderUpload:
    """The upload of a client that trained this VAE."""
    return DecoderUpload(vae.decoder, vae.latent, torch.tensor(label_counts), key, lambda: deepcopy(vae))


def server_of(
    models: Sequence[nn.Module] = (),
    sizes: Sequence[int] | None = None,
    *,
    spec: DataSpec = SMALL,
    decoders: Sequence[DecoderUpload] = (),
    guidance: torch.Tensor | None = None,
    proxy: torch.Tensor | None = None,
    recitals: Sequence[torch.Tensor] | None = None,
    label_counts: torch.Tensor | None = None,
) -> Server:
    """What a part is made with; clients of equal size unless told otherwise, proxy images uint8 `[n, C, H, W]`.

    Of each client's recital only the images are given: the labels go round over the classes.
    """
    uploads = uploads_of(models, [1] * len(models) if sizes is None else sizes, decoders)
    if label_counts is not None:
        pairs = zip(uploads.classifiers, label_counts, strict=True)
        uploads = replace(uploads, classifiers=tuple(replace(one, label_counts=counts) for one, counts in pairs))
    made = (
        None
        if recitals is None
        else tuple(
            Recital(images, torch.arange(len(images)) % spec.classes, f"recital {k}")
            for k, images in enumerate(recitals)
        )
    )
    return Server(spec, uploads, guidance, None if proxy is None else Proxy(lambda: proxy), made)


def votes_of(P: torch.Tensor, y: torch.Tensor | None = None, features: Sequence[torch.Tensor] = ()) -> Votes:
    """Client logits `[m, b, c]` on black images, made for label 0 unless told otherwise."""
    return Votes(
        torch.zeros(P.shape[1], 1, 1, 1), torch.zeros(P.shape[1]).long() if y is None else y, P, list(features)
    )


torch.set_num_threads(1)  # tiny tensors only wait for a second thread, above all on a busy machine


@pytest.fixture
def tiny(tmp_path: Path):
    """A function from overrides to a tiny configuration on the digits, with a store of its own."""
    return lambda *overrides: compose_config(*TINY, f"store={tmp_path / 'store'}", *overrides)


@pytest.fixture
def digit_domains(tmp_path: Path) -> list[str]:
    """Overrides that choose four domains of two classes with three images each; svhn is held out."""
    for domain in ("mnist", "mnist_m", "svhn", "syn"):
        for digit in "01":
            for number in range(3):
                write_image(tmp_path / "digits" / domain / digit / f"{number}.png", number)
    return ["data=digit_domains", f"data.root={tmp_path / 'digits'}", "data.held_out=svhn", f"store={tmp_path / 's'}"]


@pytest.fixture
def spec() -> DataSpec:
    """Grey 8x8 images of three classes."""
    return SMALL


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A CPU context with a store of its own, without loggers and bars."""
    from rich.console import Console

    quiet = Console(quiet=True)
    return Context(Store(tmp_path / "store"), CPU, Progress(quiet), RunLog([]))


@pytest.fixture(autouse=True)
def fixed_global_seed() -> None:
    """Tests that draw do it from the same state in any order."""
    torch.manual_seed(0)


class FixedLogits(nn.Module):
    """A 'model' that answers every image with the same logits."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(x), -1)


@pytest.fixture
def fixed_logits() -> type[FixedLogits]:
    return FixedLogits
