"""Partitions are disjoint, covering, seeded, bounded; and each has the law its name promises."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneshot_fl.data.partition import (
    Partition,
    classes_per_client,
    dirichlet,
    dirichlet_class_prior,
    iid,
    leave_one_domain_out,
    lognormal,
)
from oneshot_fl.errors import OneshotError


def _by_domain(labels, clients, seed):
    domains = np.arange(len(labels)) % next(count for count in (4, 3, 2, 1) if clients % count == 0)
    return leave_one_domain_out(labels, domains=domains, clients=clients, held_out="sketch", seed=seed)


SPLITS = {
    "iid": lambda labels, m, a, seed: iid(labels, clients=m, seed=seed),
    "dirichlet": lambda labels, m, a, seed: dirichlet(
        labels, clients=m, alpha=a, min_samples=1, retries=2000, seed=seed
    ),
    "dirichlet_class_prior": lambda labels, m, a, seed: dirichlet_class_prior(labels, clients=m, alpha=a, seed=seed),
    "lognormal": lambda labels, m, a, seed: lognormal(labels, clients=m, alpha=a, sigma=0.8, seed=seed),
    "classes_per_client": lambda labels, m, a, seed: classes_per_client(
        labels, clients=m, classes=max(2, -(-(labels.max() + 1) // m)), seed=seed
    ),
    "leave_one_domain_out": lambda labels, m, a, seed: _by_domain(labels, m, seed),
}


def _labels(count: int, classes: int, seed: int) -> np.ndarray:
    extra = np.random.default_rng(seed).integers(classes, size=count - classes)
    return np.concatenate([np.arange(classes), extra])


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(SPLITS)),
    count=st.integers(200, 800),
    classes=st.integers(2, 12),
    clients=st.integers(1, 12),
    alpha=st.floats(0.3, 10),
    seed=st.integers(0, 1000),
)
def test_disjoint_covering_non_empty_and_seeded(name, count, classes, clients, alpha, seed):
    labels = _labels(count, classes, seed)
    indices = SPLITS[name](labels, clients, alpha, seed)
    assert len(indices) == clients
    assert np.array_equal(np.sort(np.concatenate(indices)), np.arange(count))
    assert all(len(index) for index in indices)
    again = SPLITS[name](labels, clients, alpha, seed)
    assert all(np.array_equal(a, b) for a, b in zip(indices, again, strict=True))


@pytest.mark.parametrize("name", sorted(SPLITS))
def test_another_seed_gives_another_split_and_hash(name):
    labels = _labels(500, 10, 0)
    first, second = (Partition(name, SPLITS[name](labels, 5, 0.5, seed)) for seed in (0, 1))
    assert first.sha256 != second.sha256
    assert first.disjoint
    assert sum(first.sizes) == 500


def test_iid_sizes_differ_by_at_most_one():
    assert sorted(len(index) for index in iid(np.zeros(11, dtype=int), clients=3, seed=0)) == [3, 4, 4]


def test_dirichlet_keeps_the_minimum_and_skews_more_at_smaller_alpha():
    labels = np.repeat(np.arange(10), 600)

    def largest_share(alpha: float) -> float:
        split = Partition("d", dirichlet(labels, clients=5, alpha=alpha, min_samples=10, retries=1000, seed=3))
        assert min(split.sizes) >= 10
        counts = split.class_counts(labels, 10)
        return (counts.max(axis=0) / counts.sum(axis=0)).mean()

    assert largest_share(0.05) > largest_share(0.5) > largest_share(50.0)


def test_dirichlet_gives_nothing_more_to_a_client_that_is_full():
    labels = np.repeat(np.arange(10), 100)
    sizes = Partition("d", dirichlet(labels, clients=5, alpha=0.05, min_samples=1, retries=1000, seed=0)).sizes
    # a client below the cap of 200 can take in at most one more class of 100
    assert max(sizes) < 200 + 100


@pytest.mark.parametrize("name", ["dirichlet_class_prior", "lognormal"])
def test_priors_end_at_an_alpha_at_which_the_reference_code_never_does(name):
    labels = np.repeat(np.arange(10), 6000)
    begun = time.perf_counter()
    split = Partition(name, SPLITS[name](labels, 100, 0.01, 0))
    assert time.perf_counter() - begun < 5
    assert split.disjoint
    if name == "dirichlet_class_prior":
        assert set(split.sizes) == {600}


def test_dirichlet_at_alpha_001_with_100_clients_ends_in_a_clear_error():
    labels = np.repeat(np.arange(10), 6000)
    with pytest.raises(OneshotError, match=r"partition\.alpha=0\.01.*raise partition\.alpha"):
        dirichlet(labels, clients=100, alpha=0.01, min_samples=10, retries=1000, seed=0)


def test_dirichlet_at_alpha_001_works_for_five_clients():
    labels = np.repeat(np.arange(10), 6000)
    assert min(map(len, dirichlet(labels, clients=5, alpha=0.01, min_samples=10, retries=1000, seed=0))) >= 10


def test_two_classes_a_client_cover_ten_classes_with_five_clients_once():
    labels = np.repeat(np.arange(10), 50)
    counts = Partition("c", classes_per_client(labels, clients=5, classes=2, seed=1)).class_counts(labels, 10)
    assert (np.count_nonzero(counts, axis=1) == 2).all()
    assert (np.count_nonzero(counts, axis=0) == 1).all()


def test_classes_are_split_evenly_among_their_holders():
    labels = np.repeat(np.arange(4), 30)
    counts = Partition("c", classes_per_client(labels, clients=6, classes=2, seed=1)).class_counts(labels, 4)
    assert (np.count_nonzero(counts, axis=1) == 2).all()
    assert set(counts[counts > 0].tolist()) == {10}  # 6 * 2 / 4 = 3 holders a class


@pytest.mark.parametrize(("clients", "classes"), [(4, 2), (5, 11)])
def test_classes_that_cannot_cover_or_do_not_exist(clients, classes):
    with pytest.raises(OneshotError, match=r"partition\.classes"):
        classes_per_client(np.repeat(np.arange(10), 5), clients=clients, classes=classes, seed=0)


def test_more_clients_than_samples():
    with pytest.raises(OneshotError, match=r"partition\.clients"):
        iid(np.zeros(3, dtype=int), clients=4, seed=0)


def test_lognormal_sizes_spread_with_sigma():
    labels = np.repeat(np.arange(10), 100)

    def spread(sigma: float) -> float:
        return float(np.std([len(i) for i in lognormal(labels, clients=10, sigma=sigma, alpha=None, seed=0)]))

    assert spread(0.0) == 0.0
    assert spread(1.2) > spread(0.4) > 0


DOMAINS = np.array([0, 2, 0, 2, 5, 5, 0, 2, 5, 0])


def test_a_client_is_a_domain():
    split = leave_one_domain_out(DOMAINS, domains=DOMAINS, clients=3, held_out="sketch", seed=0)
    assert [index.tolist() for index in split] == [[0, 2, 6, 9], [1, 3, 7], [4, 5, 8]]


def test_several_clients_share_a_domain_evenly():
    split = leave_one_domain_out(DOMAINS, domains=DOMAINS, clients=6, held_out="sketch", seed=0)
    assert [set(DOMAINS[index]) for index in split] == [{0}, {0}, {2}, {2}, {5}, {5}]
    assert [len(index) for index in split] == [2, 2, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        (2, r"partition\.clients=2: must be 3 or a multiple .*data\.held_out=sketch"),
        (4, r"partition\.clients=4: must be 3"),
        (12, r"partition\.clients: a domain has 3 samples, this split needs at least 4"),
    ],
)
def test_clients_that_domains_cannot_be_shared_among(clients, says):
    with pytest.raises(OneshotError, match=says):
        leave_one_domain_out(DOMAINS, domains=DOMAINS, clients=clients, held_out="sketch", seed=0)
