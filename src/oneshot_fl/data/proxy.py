"""Proxy images: what a server may have of its own, for methods that distil on it (FedDF).

A proxy is `Dataset -> (the Dataset that is left for the clients, Proxy)`. Only `hold_out` takes anything from the
clients, and it does so before the partition and for every method of a comparison.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from oneshot_fl.data.dataset import Dataset, DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.seeds import torch_generator
from oneshot_fl.values import Fraction, Images, Seed


@dataclass(frozen=True)
class Proxy:
    """Unlabelled images, uint8 `[n, C, H, W]`, made when they are first asked for: most methods never do."""

    make: Callable[[], Tensor]

    @cached_property
    def images(self) -> Tensor:
        """All of them."""
        return self.make()

    @cached_property
    def sha256(self) -> str:
        """SHA-256 over the pixels, behind the shape."""
        digest = hashlib.sha256(repr(tuple(self.images.shape)).encode())
        digest.update(self.images.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def to(self, device: torch.device) -> "Proxy":
        """The same images on `device`."""
        return Proxy(lambda: self.images.to(device))


def noise(data: Dataset, *, samples: Images, seed: Seed) -> tuple[Dataset, Proxy]:
    """Pixels drawn uniformly: the only proxy that needs no data."""
    shape = (samples, data.spec.channels, data.spec.size, data.spec.size)
    rng = torch_generator(seed, "proxy")
    return data, Proxy(lambda: torch.randint(256, shape, generator=rng, dtype=torch.uint8))


def hold_out(data: Dataset, *, fraction: Fraction, seed: Seed) -> tuple[Dataset, Proxy]:
    """A random `fraction` of the training set, which no client gets (Co-Boosting's App.: 20%).

    Raises:
        OneshotError: the fraction is less than one image, or leaves none.
    """
    total = len(data.train_labels)
    count = round(fraction * total)
    if not 1 <= count < total:
        raise OneshotError(
            f"proxy.fraction={fraction}: holds out {count} of {total} training images; it must take at least one and "
            "leave at least one"
        )
    order = torch.randperm(total, generator=torch_generator(seed, "proxy"))
    left = order[count:].sort().values
    columns = ("train_images", "train_labels", "train_domains")
    remaining = replace(data, **{name: tensor[left] for name in columns if (tensor := getattr(data, name)) is not None})
    return remaining, Proxy(lambda: data.train_images[order[:count].sort().values])


def from_dataset(data: Dataset, *, other: Dataset, samples: Images, seed: Seed) -> tuple[Dataset, Proxy]:
    """At most `samples` random training images of another data set, in this one's size and channels."""
    order = torch.randperm(len(other.train_labels), generator=torch_generator(seed, "proxy"))[:samples]
    chosen = other.train_images[order.sort().values]
    return data, Proxy(lambda: _like(chosen, data.spec))


def _like(images: Tensor, spec: DataSpec) -> Tensor:
    """Images with the channels (grey from colour by the plain mean) and the size of `spec`."""
    if images.shape[1] != spec.channels:
        images = images.float().mean(dim=1, keepdim=True).expand(-1, spec.channels, -1, -1)
    if images.shape[-1] != spec.size:
        size = (spec.size, spec.size)
        images = F.interpolate(images.float(), size=size, mode="bilinear", align_corners=False, antialias=True)
    return images.round().clamp(0, 255).to(torch.uint8).contiguous() if images.is_floating_point() else images
