"""What the server receives, once, and what it has when a method's parts are made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.models.cvae import CVAE
from oneshot_fl.store import fingerprint


@dataclass(frozen=True)
class ClassifierUpload:
    """What a client with a classifier uploads."""

    model: nn.Module
    """Images `[b, C, H, W]` as models see them -> logits `[b, c]`."""
    samples: int
    """Training samples of the client."""
    key: str
    """Fingerprint of everything that the upload depends on."""


@dataclass(frozen=True)
class DecoderUpload:
    """What a client with a conditional VAE uploads: its decoder and how many samples of every class it has."""

    model: nn.Module
    """`(noise [n, latent], labels [n])` -> images `[n, C, H, W]` in [0, 1]."""
    latent: int
    label_counts: Tensor
    """`[c]`"""
    key: str
    build: Callable[[], CVAE]
    """A VAE of the same architecture with new weights."""


Upload = TypeVar("Upload", ClassifierUpload, DecoderUpload)


@dataclass(frozen=True)
class Uploads:
    """The hinge of a run: left of it clients and their data, right of it only this."""

    classifiers: tuple[ClassifierUpload, ...]
    decoders: tuple[DecoderUpload, ...] = ()

    @property
    def models(self) -> list[nn.Module]:
        """The classifiers themselves; m counts those."""
        return [upload.model for upload in self.classifiers]

    @property
    def sizes(self) -> list[int]:
        """Training samples of each client with a classifier, `[m]`."""
        return [upload.samples for upload in self.classifiers]

    @property
    def key(self) -> str:
        """Fingerprint of all uploads."""
        return fingerprint([[upload.key for upload in kind] for kind in (self.classifiers, self.decoders)])

    def through(self, step: Callable[["Uploads"], "Uploads"], described: Mapping[str, Any]) -> "Uploads":
        """What a step (an attack, a gate) leaves of them; an upload that it replaced gets a key that says by what."""
        after = step(self)
        return Uploads(
            _rekeyed(self.classifiers, after.classifiers, described), _rekeyed(self.decoders, after.decoders, described)
        )


def _rekeyed(before: tuple[Upload, ...], after: tuple[Upload, ...], described: Mapping[str, Any]) -> tuple[Upload, ...]:
    untouched = {id(upload) for upload in before}
    return tuple(
        upload if id(upload) in untouched else replace(upload, key=fingerprint([upload.key, described]))
        for upload in after
    )


@dataclass(frozen=True)
class Server:
    """What the server has when a method's parts are made; a part declares in `needs` what it takes besides `spec`.

    `classifiers`, `decoders`: at least one upload of that kind. `guidance`, `proxy`: see below.
    """

    spec: DataSpec
    uploads: Uploads
    guidance: Tensor | None = None
    """Guidance matrix U `[c, m]` of FedHydra's stratification; computed only where some part needs it."""
    proxy: Proxy | None = None
    """The server's own images."""
