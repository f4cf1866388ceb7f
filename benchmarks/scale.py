"""What is measured: m clients of one architecture with random images, and a budget small enough to repeat."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oneshot_fl.data.dataset import Dataset, make_dataset


@dataclass(frozen=True)
class Scale:
    """Sizes of one measurement; speed does not depend on what is in the images."""

    name: str
    model: str
    channels: int
    size: int
    clients: int = 5
    classes: int = 4
    """Fewer than the papers' 10, because stratification grows with them and little else does."""
    samples: int = 512
    """Of every client."""
    epochs: int = 2
    stratify_steps: int = 2
    rounds: int = 3
    """T_g"""
    generator_steps: int = 4
    """T_G"""
    batch: int = 128
    noise: int = 256
    width: int = 64

    def data(self) -> Dataset:
        """Random images and labels; the test set is one batch of 16."""
        rng = torch.Generator().manual_seed(0)

        def draw(count: int) -> tuple[Tensor, Tensor]:
            shape = (count, self.channels, self.size, self.size)
            images = torch.randint(256, shape, dtype=torch.uint8, generator=rng)
            return images, torch.randint(self.classes, (count,), generator=rng)

        return make_dataset(
            name="random",
            train=draw(self.clients * self.samples),
            test=draw(16),
            class_names=tuple(map(str, range(self.classes))),
            mean=[0.5],
            std=[0.5],
        )

    def indices(self) -> tuple[np.ndarray, ...]:
        """The samples of each client."""
        return tuple(np.split(np.arange(self.clients * self.samples), self.clients))


GREY = Scale("28x28 grey, cnn2", "cnn2", 1, 28)
COLOUR = Scale("32x32 colour, cnn3", "cnn3", 3, 32)
