"""The pool of synthetic images that the student is trained on."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from oneshot_fl.data.batches import index_batches


class Entry(NamedTuple):
    """One round's images `[b, C, H, W]`, their target labels `[b]`, and what the ensemble keeps of its answer."""

    x: Tensor
    y: Tensor
    kept: Tensor


class Pool:
    """The batches of the last `rounds` rounds; all of them if `rounds` is None.

    The clients are asked once, when a batch enters: a fixed ensemble keeps its logits, one that learns all clients'.
    `rounds=1` gives one student step a round, FedHydra's Algorithm 1 to the letter. Without `refill` the first
    round's images stay and no others are made. With `nearest` below 1 only that share of every class enters, those
    nearest to the mean image of the class: one-cluster k-means (FedMHO, Sec. 4.4, R_th).
    """

    def __init__(self, *, rounds: int | None, refill: bool = True, nearest: float = 1.0) -> None:
        self.entries: deque[Entry] = deque(maxlen=rounds)
        self.refill, self.nearest = refill, nearest
        self.added = 0
        """Batches that ever entered."""

    @property
    def closed(self) -> bool:
        """Whether it takes in no more."""
        return not self.refill and bool(self.entries)

    def add(self, entry: Entry) -> None:
        """Take in a round's batch; the oldest leaves where the pool is full."""
        self.entries.append(entry if self.nearest == 1 else _nearest(entry, self.nearest))
        self.added += 1

    def batches(self, batch_size: int, rng: torch.Generator) -> Iterator[Entry]:
        """One shuffled pass over everything in the pool."""
        x, y, kept = (torch.cat(column) for column in zip(*self.entries, strict=True))
        for batch in index_batches(len(y), batch_size, rng):
            index = batch.to(y.device)
            yield Entry(x[index], y[index], kept[index])


def _nearest(entry: Entry, share: float) -> Entry:
    """The share of every class (rounded down, at least one) with the smallest Euclidean distance to its mean."""
    chosen = []
    for label in entry.y.unique():
        members = (entry.y == label).nonzero().flatten()
        pixels = entry.x[members].flatten(1)
        distances = (pixels - pixels.mean(dim=0)).norm(dim=1)
        count = max(1, int(share * len(members)))
        chosen.append(members[distances.argsort(stable=True)[:count]].sort().values)
    index = torch.cat(chosen)
    return Entry(entry.x[index], entry.y[index], entry.kept[index])
