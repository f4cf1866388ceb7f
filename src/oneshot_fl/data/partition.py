"""Partitions: labels `[n]` -> one sorted index array per client; disjoint, covering, seeded and bounded.

"Dir(alpha)" means three things in the papers, so every split has a name of its own (docs/partitions.md).
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oneshot_fl.errors import OneshotError
from oneshot_fl.values import Clients, Count, CountOrZero, Label, Positive, Retries, Seed, Spread

Labels = NDArray[np.int64]
Indices = list[NDArray[np.int64]]


@dataclass(frozen=True)
class Partition:
    """A named split of the training set; `indices[k]` are the samples of client k."""

    name: str
    indices: Indices

    @property
    def sizes(self) -> list[int]:
        """Number of samples per client, `[m]`."""
        return [len(index) for index in self.indices]

    @property
    def sha256(self) -> str:
        """SHA-256 over the index lists (little-endian int64, each behind its length)."""
        digest = hashlib.sha256()
        for index in self.indices:
            digest.update(np.int64(len(index)).astype("<i8").tobytes())
            digest.update(index.astype("<i8").tobytes())
        return digest.hexdigest()

    @property
    def disjoint(self) -> bool:
        """Whether no sample belongs to two clients."""
        everything = np.concatenate(self.indices)
        return len(np.unique(everything)) == len(everything)

    def class_counts(self, labels: Labels, classes: int) -> NDArray[np.int64]:
        """Samples of every class at every client, `[m, c]`."""
        return np.stack([np.bincount(labels[index], minlength=classes) for index in self.indices])


def iid(labels: Labels, *, clients: Clients, seed: Seed) -> Indices:
    """A random split into parts that differ by at most one sample."""
    _check_enough(labels, clients)
    return _sorted(np.array_split(np.random.default_rng(seed).permutation(len(labels)), clients))


def dirichlet(
    labels: Labels, *, clients: Clients, alpha: Positive, min_samples: CountOrZero, retries: Retries, seed: Seed
) -> Indices:
    """Each class is dealt to the clients by Dir(alpha), with a size cap (NIID-Bench; FedHydra, DENSE).

    A client that already holds n/m samples gets nothing more of the following classes. The whole draw is repeated
    until every client has `min_samples`.

    Raises:
        OneshotError: after `retries` draws some client still had too few samples.
    """
    _check_enough(labels, clients * max(1, min_samples), way_out="partition.min_samples" if min_samples > 1 else "")
    rng = np.random.default_rng(seed)
    counts = _capped_dirichlet_draw(
        np.bincount(labels),
        clients,
        alpha,
        least=min_samples,
        retries=retries,
        rng=rng,
        way_out="partition.min_samples",
    )
    return _sorted(_deal(labels, counts, rng))


def dirichlet_equal_chunks(
    labels: Labels, *, clients: Clients, alpha: Positive, together: Count, retries: Retries, seed: Seed
) -> Indices:
    """A Dir(alpha) split that is joined and cut anew into clients of equal size (FedMHO's code, from FedDF's).

    The training set is shuffled and divided among groups of `together` clients, in each of which every class is dealt
    by Dir(alpha) with a size cap, until the smallest share is half of the mean. The shares, ordered by class, are laid
    end to end; client k is the k-th of `clients` equal pieces, which may straddle two shares.

    Raises:
        OneshotError: after `retries` draws some share of a group was still too small.
    """
    _check_enough(labels, 2 * clients)
    rng = np.random.default_rng(seed)
    order, classes = rng.permutation(len(labels)), int(labels.max()) + 1
    shares: Indices = []
    for group in _groups(clients, together):
        first, last = (len(labels) * k // clients for k in (group[0], group[-1] + 1))
        members = order[first:last]
        sizes = np.bincount(labels[members], minlength=classes)
        least = len(members) // (2 * len(group))
        counts = _capped_dirichlet_draw(sizes, len(group), alpha, least=least, retries=retries, rng=rng)
        shares += [members[index] for index in _deal(labels[members], counts, rng)]
    return _sorted(np.array_split(np.concatenate(shares), clients))


def _groups(clients: int, together: int) -> list[range]:
    """Consecutive clients, as many at once as `together`; the last group has what is left."""
    return [range(first, min(first + together, clients)) for first in range(0, clients, together)]


def dirichlet_class_prior(labels: Labels, *, clients: Clients, alpha: Positive, seed: Seed) -> Indices:
    """Clients of equal size, each with its own class prior drawn from Dir(alpha) (Co-Boosting's code, sigma=0).

    Where a class is used up, the priors are renormalised over what is left, so that the draw always ends.
    """
    return lognormal(labels, clients=clients, alpha=alpha, sigma=0.0, seed=seed)


def lognormal(labels: Labels, *, clients: Clients, sigma: Spread, alpha: Positive | None, seed: Seed) -> Indices:
    """Client sizes from a log-normal law, class priors from Dir(alpha) (Co-Boosting, Table 4).

    The clients take turns by lot as in its code: who is not full yet has the same chance of the next sample, however
    much it still lacks, so that small clients are served by their priors and large ones get what is left.
    `alpha=None` gives every client the same class mix. `sigma=0` gives clients of equal size.
    """
    _check_enough(labels, clients)
    rng = np.random.default_rng(seed)
    sizes = _proportional(rng.lognormal(0.0, sigma, clients), len(labels))
    class_sizes = np.bincount(labels)
    if alpha is None:
        priors = np.tile(class_sizes / len(labels), (clients, 1))
    else:
        priors = rng.dirichlet(np.full(len(class_sizes), alpha), clients)
    return _sorted(_deal(labels, _fill(sizes, priors, class_sizes, rng), rng))


def classes_per_client(labels: Labels, *, clients: Clients, classes: Count, seed: Seed) -> Indices:
    """Every client holds `classes` of all classes, every class is split evenly among its holders (2c/c: `classes=2`).

    Classes are shuffled once and round robin, so that no class has over one holder more than another.

    Raises:
        OneshotError: more classes a client than there are, too few in all to cover every class, or a class has fewer
            samples than holders.
    """
    present = np.unique(labels)
    total = len(present)
    choice = f"choose between {-(-total // clients)} and {total}"
    if classes > total:
        raise OneshotError(f"partition.classes={classes}: there are only {total} classes; {choice}")
    if classes * clients < total:
        raise OneshotError(
            f"partition.classes={classes}: {clients} clients with {classes} classes each cannot cover {total} "
            f"classes; {choice}, or another partition.clients"
        )
    rng = np.random.default_rng(seed)
    dealt = np.resize(rng.permutation(present), classes * clients).reshape(clients, classes)
    sizes = np.bincount(labels)
    counts = np.zeros((len(sizes), clients), dtype=np.int64)
    for label in present:
        holders = np.flatnonzero((dealt == label).any(axis=1))
        _check_shares(label, sizes[label], len(holders), classes)
        counts[label, holders] = [len(part) for part in np.array_split(np.arange(sizes[label]), len(holders))]
    return _sorted(_deal(labels, counts, rng))


def _check_shares(label: int, size: int, holders: int, classes: int) -> None:
    if size < holders:
        raise OneshotError(
            f"partition.classes={classes}: class {label} has {size} samples and would be dealt to {holders} clients; "
            "lower partition.classes or partition.clients"
        )


def leave_one_domain_out(
    labels: Labels, *, domains: NDArray[np.int64], clients: Clients, held_out: Label | None, seed: Seed
) -> Indices:
    """One client a training domain, in their order, or as many for each, which share it iid (Co-Boosting, Table 14).

    Args:
        domains: the domain of each sample, `[n]`.
        held_out: the domain that the data set keeps for testing; its samples are not among `labels`.

    Raises:
        OneshotError: `clients` is no multiple of the number of domains, or a domain has too few samples.
    """
    present = np.unique(domains)
    share, rest = divmod(clients, len(present))
    if rest:
        raise OneshotError(
            f"partition.clients={clients}: must be {len(present)} or a multiple of it, the number of domains to train "
            f"on (all but data.held_out={held_out})"
        )
    rng = np.random.default_rng(seed)
    indices: Indices = []
    for domain in present:
        members = np.flatnonzero(domains == domain)
        _check_enough(members, share, of="a domain")
        indices += np.array_split(rng.permutation(members), share)
    return _sorted(indices)


def _check_enough(samples: NDArray[np.int64], needed: int, *, of: str = "the training set", way_out: str = "") -> None:
    if len(samples) < needed:
        raise OneshotError(
            f"partition.clients: this split needs at least {needed} samples, and {of} has {len(samples)}; "
            f"lower partition.clients{f' or {way_out}' * bool(way_out)}"
        )


def _capped_dirichlet_draw(
    class_sizes: NDArray[np.int64],
    clients: int,
    alpha: float,
    *,
    least: int,
    retries: int,
    rng: np.random.Generator,
    way_out: str = "",
) -> NDArray[np.int64]:
    """Counts `[c, m]` of the first of `retries` draws that gives every client at least so many samples.

    Raises:
        OneshotError: none did; `way_out` is a key that may be lowered besides `partition.clients`.
    """
    for _ in range(retries):
        counts = _capped_dirichlet_counts(class_sizes, clients, alpha, rng)
        if counts.sum(axis=0).min() >= least:
            return counts
    raise OneshotError(
        f"partition.alpha={alpha}: {retries} Dirichlet draws left some of the {clients} clients with fewer than "
        f"{least} samples; raise partition.alpha, or lower partition.clients{f' or {way_out}' * bool(way_out)}"
    )


def _capped_dirichlet_counts(
    class_sizes: NDArray[np.int64], clients: int, alpha: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    counts = np.zeros((len(class_sizes), clients), dtype=np.int64)
    cap = class_sizes.sum() / clients
    for label, size in enumerate(class_sizes):
        open_clients = counts.sum(axis=0) < cap
        share = rng.dirichlet(np.full(clients, alpha)) * open_clients
        if not size:
            continue
        if not share.any():  # all of it went to full clients: a Dirichlet's share among the others is one of its own
            share[open_clients] = rng.dirichlet(np.full(open_clients.sum(), alpha))
        share /= share.sum()
        counts[label] = np.diff(np.floor(np.cumsum(share) * size + 1e-9).astype(np.int64), prepend=0)
        counts[label, -1] += size - counts[label].sum()
    return counts


def _proportional(weights: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Integers of the given total, each at least 1, as proportional to `weights` as rounding allows."""
    sizes = 1 + np.floor(weights / weights.sum() * (total - len(weights))).astype(np.int64)
    sizes[np.argsort(-weights)[: total - sizes.sum()]] += 1
    return sizes


def _fill(
    sizes: NDArray[np.int64],
    priors: NDArray[np.float64],
    class_sizes: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Counts `[c, m]`: clients draw one class at a time, in turns by lot, from their prior over what is left."""
    left = class_sizes.copy()
    counts = np.zeros((len(class_sizes), len(sizes)), dtype=np.int64)
    cumulative = _cumulative(priors, left)
    uniform = rng.random(sizes.sum())
    for draw, client in zip(uniform.tolist(), _turns(sizes, rng), strict=True):
        label = bisect_right(cumulative[client], draw * cumulative[client][-1])
        counts[label, client] += 1
        left[label] -= 1
        if left[label] == 0 and left.any():
            cumulative = _cumulative(priors, left)
    return counts


def _turns(sizes: NDArray[np.int64], rng: np.random.Generator) -> Iterator[int]:
    """Client k `sizes[k]` times, each time drawn with equal chances from those that are not full."""
    left = sizes.tolist()
    open_clients = [k for k, size in enumerate(left) if size]
    for draw in rng.random(sum(left)).tolist():
        client = open_clients[int(draw * len(open_clients))]
        yield client
        left[client] -= 1
        if not left[client]:
            open_clients.remove(client)


def _cumulative(priors: NDArray[np.float64], left: NDArray[np.int64]) -> list[list[float]]:
    """Each client's cumulative prior over the classes that are left; their sizes where no prior mass remains."""
    open_mass = priors * (left > 0)
    exhausted = open_mass.sum(axis=1) < np.finfo(np.float64).tiny
    open_mass[exhausted] = left
    open_mass /= open_mass.sum(axis=1, keepdims=True)
    return np.cumsum(open_mass, axis=1).tolist()


def _deal(labels: Labels, counts: NDArray[np.int64], rng: np.random.Generator) -> Indices:
    """Shuffle every class and cut it by `counts[c, m]`; what a client gets is ordered by class."""
    per_client: list[list[NDArray[np.int64]]] = [[] for _ in range(counts.shape[1])]
    for label, row in enumerate(counts):
        members = rng.permutation(np.flatnonzero(labels == label))
        for client, part in enumerate(np.split(members, np.cumsum(row)[:-1])):
            per_client[client].append(part)
    return [np.concatenate(parts) for parts in per_client]


def _sorted(indices: Indices) -> Indices:
    return [np.sort(index) for index in indices]
