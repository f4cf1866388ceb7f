"""The pool of synthetic images that the student is trained on."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from oneshot_fl.data.batches import index_batches


class Entry(NamedTuple):
    """One round's images `[b, C, H, W]`, their target labels `[b]` and the teacher's logits `[b, c]` on them."""

    x: Tensor
    y: Tensor
    teacher: Tensor


class Pool:
    """The batches of the last `rounds` rounds; all of them if `rounds` is None.

    Teacher logits are computed once, when a batch enters, and kept: neither the clients nor a fixed ensemble change.
    `rounds=1` gives one student step a round, FedHydra's Algorithm 1 to the letter.
    """

    def __init__(self, *, rounds: int | None) -> None:
        self.entries: deque[Entry] = deque(maxlen=rounds)

    def add(self, entry: Entry) -> None:
        """Take in a round's batch; the oldest leaves where the pool is full."""
        self.entries.append(entry)

    def batches(self, batch_size: int, rng: torch.Generator) -> Iterator[Entry]:
        """One shuffled pass over everything in the pool."""
        x, y, teacher = (torch.cat(column) for column in zip(*self.entries, strict=True))
        for batch in index_batches(len(y), batch_size, rng):
            index = batch.to(y.device)
            yield Entry(x[index], y[index], teacher[index])
