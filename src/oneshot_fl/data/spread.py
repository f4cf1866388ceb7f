"""Choosing some of many samples evenly and without chance: over their labels, and over those of one label."""

import torch
from torch import Tensor


def spread(labels: Tensor, count: int) -> Tensor:
    """Up to `count` positions in `labels` `[n]`, sorted by label: as many of each label as there are, if possible.

    A label that is too rare for its share leaves the rest of it to the others. The samples of a label are taken at
    even distances, so that every part of the order in which they came is represented.
    """
    members = [(labels == label).nonzero().flatten() for label in labels.unique()]
    shares = even_shares([len(own) for own in members], count)
    return torch.cat([own[evenly_spaced(len(own), share)] for own, share in zip(members, shares, strict=True)])


def even_shares(available: list[int], count: int) -> list[int]:
    """Up to `count` in shares as equal as `available` allows; what cannot be equal goes to the largest."""
    shares = [0] * len(available)
    rarest_first = sorted(range(len(available)), key=available.__getitem__)
    for done, place in enumerate(rarest_first):
        shares[place] = min(available[place], (count - sum(shares)) // (len(available) - done))
    return shares


def evenly_spaced(total: int, count: int) -> Tensor:
    """`count` different positions below `total` at equal distances, the first of them 0; all where there are fewer."""
    count = min(count, total)
    return torch.arange(count) * total // max(count, 1)
