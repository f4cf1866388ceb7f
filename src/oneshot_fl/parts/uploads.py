"""What the server receives, once."""

from dataclasses import dataclass, field

from torch import Tensor, nn


@dataclass(frozen=True)
class Decoder:
    """What a client with a conditional VAE uploads: its decoder and how many samples of every class it has."""

    module: nn.Module
    """`(noise [n, latent], labels [n])` -> images `[n, C, H, W]` in [0, 1]."""
    latent: int
    label_counts: Tensor
    """`[c]`"""


@dataclass(frozen=True)
class Uploads:
    """The clients' models and what is known of them."""

    models: list[nn.Module]
    """Of the clients that upload a classifier; m counts those."""
    sizes: list[int]
    """Training samples of each of them, `[m]`."""
    guidance: Tensor | None = None
    """Guidance matrix U `[c, m]` of FedHydra's stratification; computed only where some part needs it."""
    decoders: list[Decoder] = field(default_factory=list)
    """Of the clients that upload a decoder."""
