"""What a client trains on: its own part of the training set."""

from dataclasses import dataclass

import torch
from torch import Tensor

from oneshot_fl.data.dataset import Dataset, DataSpec


@dataclass(frozen=True)
class OwnSamples:
    """One client's samples, taken from the training set when they are asked for; nobody else's travel with them."""

    spec: DataSpec
    all_images: Tensor
    all_labels: Tensor
    index: Tensor
    """Which of them are the client's, `[n]`."""

    @property
    def images(self) -> Tensor:
        """uint8 `[n, C, H, W]`"""
        return self.all_images[self.index]

    @property
    def labels(self) -> Tensor:
        """`[n]`"""
        return self.all_labels[self.index]

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        """Some images as models see them, and their labels."""
        chosen = self.index[:count]
        return self.spec.to_input(self.all_images[chosen]), self.all_labels[chosen]

    def __len__(self) -> int:
        return len(self.index)

    def __reduce__(self) -> tuple[type["OwnSamples"], tuple[DataSpec, Tensor, Tensor, Tensor]]:
        return OwnSamples, (self.spec, self.images, self.labels, torch.arange(len(self)).to(self.index.device))


def own_samples(data: Dataset, index: Tensor) -> OwnSamples:
    """The samples of a data set's training part that a client owns."""
    return OwnSamples(data.spec, data.train_images, data.train_labels, index.to(data.train_labels.device))
