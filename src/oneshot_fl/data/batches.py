"""Batches by indexing tensors that already live on the device: no files, no worker processes."""

from collections.abc import Callable, Iterator
from copy import copy

import torch
from torch import Tensor

from oneshot_fl.data.dataset import DataSpec


def index_batches(
    count: int, batch_size: int, rng: torch.Generator | None = None, *, device: torch.device | None = None
) -> list[Tensor]:
    """Split `range(count)` into batches of `batch_size`; with `rng` they are shuffled, and `trainable_batches`.

    They move to `device`, where what they point into lies, all at once: every copy waits for the device.
    """
    if rng is None:
        return list(torch.arange(count, device=device).split(batch_size))
    return trainable_batches(torch.randperm(count, generator=rng).to(device), batch_size)


def trainable_batches(order: Tensor, batch_size: int) -> list[Tensor]:
    """Split positions `[n]` into batches of `batch_size`.

    A last batch of one sample joins the batch before it, and a single sample is taken twice, because batch
    normalisation cannot train on one value per channel.
    """
    batches = list(order.split(batch_size))
    if batch_size > 1:
        batches = last_joined(batches)
    return [batch.repeat(2) if len(batch) == 1 else batch for batch in batches]


def last_joined(batches: list[Tensor]) -> list[Tensor]:
    """The same batches, but a last one of a single sample joins the one before it."""
    if len(batches) < 2 or len(batches[-1]) > 1:
        return batches
    return [*batches[:-2], torch.cat(batches[-2:])]


class Unlabelled:
    """What a model is asked where there is no test set, to see whether its answers are finite: one grey image."""

    def __init__(self, spec: DataSpec) -> None:
        self.spec = spec

    def __iter__(self) -> Iterator[tuple[Tensor, None]]:
        yield torch.zeros(1, self.spec.channels, self.spec.size, self.spec.size), None


class ImageBatches:
    """An iterable over normalised images `[b, C, H, W]` and labels `[b]`; shuffled anew each time if `rng` is given.

    `augment` gets every batch's images as uint8, before they are normalised.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        spec: DataSpec,
        batch_size: int,
        rng: torch.Generator | None = None,
        augment: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.images, self.labels, self.spec = images, labels, spec
        self.batch_size, self.rng, self.augment = batch_size, rng, augment
        self.single = True

    def without_single(self) -> "ImageBatches":
        """The same, but a last batch of one image joins the one before it, for what normalises by the batch."""
        other = copy(self)
        other.single = False
        return other

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        batches = index_batches(len(self.labels), self.batch_size, self.rng, device=self.labels.device)
        for index in batches if self.single else last_joined(batches):
            images = self.images[index]
            yield self.spec.to_input(self.augment(images) if self.augment else images), self.labels[index]
