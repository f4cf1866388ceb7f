"""What the server receives, once."""

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Uploads:
    """The clients' models and what is known of them."""

    models: list[nn.Module]
    sizes: list[int]
    """Training samples a client, `[m]`."""
    guidance: Tensor | None = None
    """Guidance matrix U `[c, m]` of FedHydra's stratification; computed only where some part needs it."""
