"""A whole run of a method at a scale, by the framework and by the literal version: seconds of each part."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from omegaconf import DictConfig
from rich.console import Console
from torch import nn

from benchmarks import literal
from benchmarks.measure import Seconds
from benchmarks.scale import Scale
from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import build, composed
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.partition import Partition
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.distill import DistillModule
from oneshot_fl.phases.prepare import RunData
from oneshot_fl.pipeline import exchange
from oneshot_fl.store import Store
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress


def configuration(method: str, scale: Scale, *more: str) -> DictConfig:
    """The program's own configuration of a method at a scale."""
    overrides = [
        f"method={method}",
        f"model={scale.model}",
        f"partition.clients={scale.clients}",
        "budget=paper",
        f"budget.generator_width={scale.width}",
        f"generator.noise={scale.noise}",
        f"clients.epochs={scale.epochs}",
        f"stratify.steps={scale.stratify_steps}",
        f"distill.rounds={scale.rounds}",
        f"distill.generator_steps={scale.generator_steps}",
        *(f"{phase}.batch_size={scale.batch}" for phase in ("clients", "stratify", "distill")),
        *more,
    ]
    return composed(*overrides)


def ours(cfg: DictConfig, scale: Scale) -> Seconds:
    """One exchange with an empty store, as the program runs it."""
    data = scale.data()
    given = RunData(data, Partition("even", scale.indices()), Proxy(lambda: torch.empty(0)), data.fingerprint)
    experiment = experiment_of(cfg)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as store, _split() as server:
        context = Context(Store(Path(store)), experiment.trainer, Progress(Console(quiet=True)), RunLog([]))
        result = exchange(experiment, given, None, context)
    return {
        "clients": sum(client.cost.seconds for client in result.clients),
        "stratification": result.guidance.spent.cost.seconds if result.guidance else 0.0,
        **server,
        "whole": time.perf_counter() - begun,
    }


@contextmanager
def _split() -> Iterator[dict[str, float]]:
    """Seconds of the server's two parts while the block runs: making images, and the rest of a round."""
    seconds = {"generator": 0.0, "pool": 0.0}
    whole_round, generate = DistillModule.training_step, DistillModule._generate_all

    def timed_round(module: DistillModule, *batch: Any) -> None:
        begun, before = time.perf_counter(), seconds["generator"]
        whole_round(module, *batch)
        seconds["pool"] += time.perf_counter() - begun - (seconds["generator"] - before)

    def timed_generate(module: DistillModule) -> Any:
        begun = time.perf_counter()
        made = generate(module)
        seconds["generator"] += time.perf_counter() - begun
        return made

    with patch.multiple(DistillModule, training_step=timed_round, _generate_all=timed_generate):
        yield seconds


def literally(method: str, scale: Scale) -> Seconds:
    """The same by hand; only what the framework's clock counts too, so everything is composed and built before it."""
    data = scale.data()
    spec = data.spec
    student, *models = _classifiers(scale, spec, count=1 + scale.clients)
    begun = time.perf_counter()
    for model, index in zip(models, scale.indices(), strict=True):
        pictures = literal.PictureSet(data.train_images[index], data.train_labels[index], spec)
        literal.train_client(model, pictures, epochs=scale.epochs, batch=scale.batch)
        model.eval()
    trained = time.perf_counter()
    shape = {"batch": scale.batch, "noise": scale.noise, "width": scale.width}
    U = literal.stratify(models, spec, steps=scale.stratify_steps, **shape) if method == "fedhydra" else None
    stratified = time.perf_counter()
    server = literal.Server(models, student, spec, U, **shape)
    server.run(rounds=scale.rounds, steps=scale.generator_steps)
    return {
        "clients": trained - begun,
        "stratification": stratified - trained,
        **server.seconds,
        "whole": time.perf_counter() - begun,
    }


def _classifiers(scale: Scale, spec: DataSpec, *, count: int) -> list[nn.Module]:
    model = configuration("fedavg", scale).model
    return [build(model, spec=spec) for _ in range(count)]
