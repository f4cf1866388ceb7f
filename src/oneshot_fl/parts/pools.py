"""The pool of synthetic images that the student is trained on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneshot_fl.data.batches import trainable_batches
from oneshot_fl.data.spread import spread
from oneshot_fl.errors import OneshotError
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import only_read
from oneshot_fl.values import Count, Share, whole_part


class Entry(NamedTuple):
    """One round's images with what is known of them."""

    x: Tensor
    """`[b, C, H, W]`"""
    y: Tensor
    """Target labels, `[b]`."""
    answers: Tensor
    """What the ensemble remembers of its answer, `[b, ...]`."""
    trust: Tensor
    """How far an image shows its label, `[b]`: from 0, where the label is only guessed, to 1, where it was made for it.

    `parts.recitals.DOUBTED` where it was made for it and does not show it.
    """


class Pool:
    """The batches of the last `rounds` rounds; all of them if `rounds` is None.

    The clients are asked once, when a batch enters: a fixed ensemble keeps its logits, one that learns all clients'.
    `rounds=1` gives one student step per round, FedHydra's Algorithm 1 to the letter. Without `refill` the first
    round's images stay and no others are made. With `nearest` below 1 only that share of every class enters, those
    nearest to the mean image of the class: one-cluster k-means (FedMHO, Sec. 4.4, R_th). With `uint8` pixels are kept
    as bytes, a quarter of the memory, as the reference codes' PNG files do (they cut where this rounds); pixels beyond
    black or white are refused. Without `shuffle` the images are handed out in the order in which they were made
    (FedISCA).

    Args:
        server: with the spec of the images.
    """

    def __init__(
        self,
        server: Server,
        *,
        rounds: Count | None,
        refill: bool = True,
        nearest: Share = 1.0,
        uint8: bool = False,
        shuffle: bool = True,
    ) -> None:
        self.entries: deque[Entry] = deque(maxlen=rounds)
        self.refill, self.nearest, self.shuffle = refill, nearest, shuffle
        self.spec = server.spec if uint8 else None
        self.added = 0
        """Batches that ever entered."""

    @property
    def closed(self) -> bool:
        """Whether it takes in no more."""
        return not self.refill and bool(self.entries)

    @property
    def size(self) -> int:
        """Images that it holds now."""
        return sum(len(entry.y) for entry in self.entries)

    @property
    def bytes(self) -> int:
        """What it holds now."""
        return sum(tensor.numel() * tensor.element_size() for entry in self.entries for tensor in entry)

    def pack(self, x: Tensor) -> Tensor:
        """Images as models see them, as they are kept; in the layout that a checkpoint is read in.

        Raises:
            OneshotError: bytes cannot hold them.
        """
        if self.spec is None:
            return x.contiguous()
        if share := self.spec.share_beyond(x):
            raise OneshotError(
                f"method.pool.uint8=true: {share:.0%} of the pixels that method.source makes are darker than black or "
                "lighter than white, and bytes would cut them; set method.pool.uint8=false"
            )
        return self.spec.to_bytes(x).contiguous()

    def unpack(self, kept: Tensor) -> Tensor:
        """The inverse of `pack` but for the rounding, which clients and student see alike."""
        return kept if self.spec is None else self.spec.to_input(kept)

    def add(self, entry: Entry) -> None:
        """Take in a round's batch, its images packed; the oldest leaves where the pool is full."""
        self.entries.append(entry if self.nearest == 1 else _nearest(entry, self.unpack(entry.x), self.nearest))
        self.added += 1

    def restore(self, entries: Iterable[Entry], *, added: int) -> None:
        """What it held after `added` batches, as it was then: nothing is chosen of it a second time."""
        self.entries.extend(entries)
        self.added = added

    def newest(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Up to `count` of the newest images, unpacked, their labels `[n]` and how far those are trusted `[n]`.

        Evenly over the labels, and sorted by them.

        As many of the newest rounds are looked at as hold that many images. Where their order is that of time, only the
        last of them count: a round of FedISCA begins with noise.
        """
        recent: list[Entry] = []
        while len(recent) < len(self.entries) and sum(len(entry.y) for entry in recent) < count:
            recent.append(self.entries[-1 - len(recent)])
        if not self.shuffle:
            recent = [Entry(*(column[-count:] for column in entry)) for entry in recent]
        x, y, _, trust = joined(recent)
        chosen = spread(y, count)
        return self.unpack(x[chosen]), y[chosen], trust[chosen]

    def batches(self, batch_size: int, rng: torch.Generator) -> Iterator[Entry]:
        """One pass over everything in the pool, unpacked; shuffled, or the oldest image first."""
        x, y, answers, trust = joined(self.entries)
        order = torch.randperm(len(y), generator=rng) if self.shuffle else torch.arange(len(y))
        for index in trainable_batches(order.to(y.device), batch_size):
            yield Entry(self.unpack(x[index]), y[index], answers[index], trust[index])

    def before_newest(self) -> "Pool":
        """The pool as it was before its newest batch entered."""
        other = copy(self)
        other.entries = deque(list(self.entries)[:-1])
        return other

    def with_answers(self, answer: Callable[[Tensor], Tensor], batch_size: int) -> "Pool":
        """A pool of the same images that keeps `answer(images)` `[n, ...]` instead, asked for batch by batch."""
        other = copy(self)
        parts = ((entry, [answer(self.unpack(part)) for part in entry.x.split(batch_size)]) for entry in self.entries)
        other.entries = deque(entry._replace(answers=torch.cat(answers)) for entry, answers in parts)
        return other


def joined(entries: Sequence[Entry]) -> Entry:
    """Several batches as one, in their order."""
    return entries[0] if len(entries) == 1 else joined_apart(entries)


def joined_apart(entries: Iterable[Entry]) -> Entry:
    """The same in memory of its own: a source may make its next images where it made these."""
    return Entry(*(torch.cat(column) for column in zip(*entries, strict=True)))


def refit(ensemble: Any, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
    """An ensemble's `refit`, once it is seen that it leaves the pool's images, labels and trust as they are.

    What it has the pool remember is its own.

    Raises:
        OneshotError: it writes into them.
    """
    kept = [column for x, y, _, trust in pool.entries for column in (x, y, trust)]
    line = "method.ensemble: refit writes into the pool, of which the student learns too; let it write into a copy"
    with only_read(kept, line):
        ensemble.refit(pool, batch_size, rng)


def _nearest(entry: Entry, x: Tensor, share: float) -> Entry:
    """The share of every class (rounded down, at least one) with the smallest Euclidean distance to its mean."""
    chosen = []
    for label in entry.y.unique():
        members = (entry.y == label).nonzero().flatten()
        pixels = x[members].flatten(1)
        distances = (pixels - pixels.mean(dim=0)).norm(dim=1)
        count = max(1, whole_part(share, len(members)))
        chosen.append(members[distances.argsort(stable=True)[:count]].sort().values)
    index = torch.cat(chosen)
    return Entry(*(column[index] for column in entry))
