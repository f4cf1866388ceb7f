"""Clients that train a classifier and upload it whole."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.optimizers import fused
from oneshot_fl.parts.uploads import ClassifierUpload
from oneshot_fl.phases.clients.module import Batch, ClientModule, SharpnessAwareModule
from oneshot_fl.phases.clients.training import Sent, Training


class Classifier:
    """This kind of client, as `phases.clients.train` asks it."""

    name: ClassVar[str] = "classifier"
    uploads: ClassVar[str] = "classifiers"
    settings: ClassVar[str] = "clients"
    """The configuration's key of its training."""

    def check(self, architecture: Architecture, training: Training, samples: Iterable[int], spec: DataSpec) -> None:
        """Refuse private training that cannot be, or means nothing."""
        if training.epsilon is not None:
            with _opacus(training):
                from oneshot_fl.phases.clients.private import check_private
            check_private(architecture, training, samples, spec)

    def module(
        self,
        model: nn.Module,
        training: Training,
        batches: Iterable[Batch],
        spec: DataSpec,
    ) -> ClientModule:
        """What trains the model."""
        optimizer = fused(training.optimizer)
        if training.epsilon is not None:
            with _opacus(training):
                from oneshot_fl.phases.clients.private import PrivateModule
            return PrivateModule(model, optimizer, batches, training=training)
        if training.sam is None:
            return ClientModule(model, optimizer, batches)
        return SharpnessAwareModule(model, optimizer, batches, rho=training.sam)

    def uploaded(self, model: nn.Module) -> nn.Module:
        """The part of a trained model that leaves the client: all of it."""
        return model

    def facts(self, labels: Tensor, classes: int) -> dict[str, Any]:
        """What is uploaded beside it: nothing."""
        return {}

    def one_image(self, spec: DataSpec, model: nn.Module) -> tuple[Tensor, ...]:
        """The inputs of one image's pass through the model."""
        return (torch.zeros(1, spec.channels, spec.size, spec.size),)

    def probe(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """What the trained model makes of some of its samples: logits `[b, c]`."""
        return model(x)

    def upload(self, model: nn.Module, sent: Sent) -> ClassifierUpload:
        """The upload as the server holds it."""
        return ClassifierUpload(model, sent.samples, sent.key, sent.label_counts)


@contextmanager
def _opacus(training: Training) -> Iterator[None]:
    """Only imports of what trains privately; nothing else needs Opacus."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise OneshotError(
            f"clients.epsilon={training.epsilon:g}: {error.name} is missing; pip install 'oneshot-fl[privacy]', or set "
            "it to null"
        ) from error
