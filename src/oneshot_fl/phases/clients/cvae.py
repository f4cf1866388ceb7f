"""Clients too weak for a classifier: they train a conditional VAE and upload its decoder and label counts."""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.cvae import CVAE
from oneshot_fl.models.optimizers import OptimizerFactory, fused
from oneshot_fl.parts.uploads import DecoderUpload
from oneshot_fl.phases.clients.module import Batch, ClientModule
from oneshot_fl.phases.clients.training import Sent, Training


class AutoencoderModule(ClientModule):
    """Training of one client's conditional VAE on pixels; the noise comes from the seeded global generator."""

    model: CVAE

    def __init__(self, model: CVAE, optimizer: OptimizerFactory, batches: Iterable[Batch], *, spec: DataSpec) -> None:
        super().__init__(model, optimizer, batches)
        self.spec = spec

    def loss(self, batch: Batch) -> Tensor:
        """Reconstruction and KL, as a scalar."""
        x, y = batch
        noise = torch.randn(len(x), self.model.latent).to(x.device)
        return self.model.loss(self.spec.to_pixels(x), y, noise)


class Autoencoder:
    """This kind of client, as `phases.clients.train` asks it."""

    name: ClassVar[str] = "cvae"
    uploads: ClassVar[str] = "decoders"
    settings: ClassVar[str] = "clients.cvae"
    """The configuration's key of its training."""

    def check(self, architecture: Architecture, training: Training, samples: Iterable[int], spec: DataSpec) -> None:
        """Nothing is refused."""

    def module(self, model: Any, training: Training, batches: Iterable[Batch], spec: DataSpec) -> ClientModule:
        """What trains the model, a `CVAE`."""
        return AutoencoderModule(model, fused(training.optimizer), batches, spec=spec)

    def uploaded(self, model: Any) -> nn.Module:
        """The part of a trained model that leaves the client: only the decoder."""
        return model.decoder

    def facts(self, labels: Tensor, classes: int) -> dict[str, Any]:
        """What is uploaded beside it: how many samples of every class the client has."""
        return {"label_counts": labels.bincount(minlength=classes).tolist()}

    def one_image(self, spec: DataSpec, model: Any) -> tuple[Tensor, ...]:
        """The inputs of one image's pass through the VAE and back."""
        image = torch.zeros(1, spec.channels, spec.size, spec.size)
        return image, torch.zeros(1, dtype=torch.long), torch.zeros(1, model.latent)

    def probe(self, model: Any, x: Tensor, y: Tensor) -> Tensor:
        """What the trained decoder draws of the classes of some samples: images `[b, C, H, W]`."""
        return model.decoder(torch.zeros(len(y), model.latent, device=y.device), y)

    def upload(self, model: nn.Module, sent: Sent) -> DecoderUpload:
        """The upload as the server holds it."""
        counts = torch.tensor(sent.facts["label_counts"])
        return DecoderUpload(model, sent.build().latent, counts, sent.key, sent.build)
