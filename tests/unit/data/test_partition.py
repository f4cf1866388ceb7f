"""Partitions are disjoint, covering, seeded, bounded; and each has the law its name promises."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneshot_fl.data import partition
from oneshot_fl.data.partition import (
    Partition,
    _capped_dirichlet_counts,
    _cumulative,
    _proportional,
    _turns,
    classes_per_client,
    dirichlet,
    dirichlet_class_prior,
    dirichlet_equal_chunks,
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
    "dirichlet_equal_chunks": lambda labels, m, a, seed: dirichlet_equal_chunks(
        labels, clients=m, alpha=a, together=4, retries=20000, seed=seed
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


def test_the_smaller_alpha_the_fewer_clients_share_a_class_however_small_it_is():
    labels = np.repeat(np.arange(10), 100)

    def holders(alpha: float) -> float:
        splits = (
            Partition("d", dirichlet(labels, clients=20, alpha=alpha, min_samples=0, retries=1, seed=seed))
            for seed in range(20)
        )
        return np.mean([(split.class_counts(labels, 10) > 0).sum(axis=0).mean() for split in splits])

    assert holders(1e-2) > holders(1e-4) >= holders(1e-9) >= 1


def test_a_class_without_samples_is_dealt_to_nobody():
    labels = np.repeat([0, 2], 50)
    with np.errstate(all="raise"):
        split = Partition("d", dirichlet(labels, clients=2, alpha=1e-9, min_samples=50, retries=1000, seed=0))
    assert split.sizes == [50, 50]


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


@pytest.mark.parametrize(("alpha", "low", "high"), [(0.1, 0.3, 1.0), (100.0, 0.1, 0.2)])
def test_a_class_prior_is_as_uneven_as_alpha_says(alpha, low, high):
    labels = np.repeat(np.arange(10), 1000)
    split = Partition("p", SPLITS["dirichlet_class_prior"](labels, 10, alpha, 0))
    shares = split.class_counts(labels, 10) / np.array(split.sizes)[:, None]
    assert low < shares.max(axis=1).mean() < high


def test_lognormal_without_alpha_gives_everybody_the_classes_of_all():
    labels = np.repeat(np.arange(3), [5000, 3000, 2000])
    split = Partition("l", lognormal(labels, clients=4, sigma=0.4, alpha=None, seed=0))
    shares = split.class_counts(labels, 3) / np.array(split.sizes)[:, None]
    assert abs(shares - [0.5, 0.3, 0.2]).max() < 0.05


def test_who_shares_a_sample_is_not_disjoint():
    own, other = np.arange(3), np.arange(2, 5)
    assert Partition("p", [own, own + 3]).disjoint
    assert not Partition("p", [own, other]).disjoint


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


@pytest.mark.parametrize(
    ("clients", "classes", "line"),
    [
        (4, 2, "4 clients with 2 classes each cannot cover 10 classes; choose between 3 and 10, or another"),
        (5, 11, "there are only 10 classes; choose between 2 and 10$"),
    ],
)
def test_classes_that_cannot_cover_or_do_not_exist(clients, classes, line):
    with pytest.raises(OneshotError, match=rf"^partition\.classes={classes}: {line}"):
        classes_per_client(np.repeat(np.arange(10), 5), clients=clients, classes=classes, seed=0)


def test_a_class_with_fewer_samples_than_holders_is_refused_and_with_as_many_dealt():
    labels = np.repeat(np.arange(3), [30, 30, 2])  # 6 clients with 2 of 3 classes: 4 holders a class
    with pytest.raises(OneshotError, match=r"^partition\.classes=2: class 2 has 2 samples .* to 4 clients; lower"):
        classes_per_client(labels, clients=6, classes=2, seed=0)
    enough = np.append(labels, [2, 2])
    counts = Partition("c", classes_per_client(enough, clients=6, classes=2, seed=0)).class_counts(enough, 3)
    assert (np.count_nonzero(counts, axis=1) == 2).all()


def test_a_class_without_samples_is_not_dealt():
    labels = np.repeat([0, 1, 3], 30)
    counts = Partition("c", classes_per_client(labels, clients=6, classes=2, seed=0)).class_counts(labels, 4)
    assert (np.count_nonzero(counts, axis=1) == 2).all()
    assert counts[:, 2].sum() == 0


def test_the_deal_of_classes_is_what_it_was():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 50))
    told = "ffb988ed46480640b9cfe58405ea02b91a8d84ed67d7aff8c914cf7136e3a663"
    assert Partition("c", classes_per_client(labels, clients=7, classes=3, seed=1)).sha256 == told


@pytest.mark.parametrize(
    ("least", "remedy"), [(10, "lower partition.clients or partition.min_samples"), (1, "clients")]
)
def test_few_samples_for_a_dirichlet_split_name_what_may_be_lowered(least, remedy):
    with pytest.raises(OneshotError, match=rf"needs at least {5 * least} samples, .*{remedy}$"):
        dirichlet(np.zeros(4, dtype=int), clients=5, alpha=1.0, min_samples=least, retries=1, seed=0)


def test_more_clients_than_samples():
    with pytest.raises(OneshotError, match=r"partition\.clients"):
        iid(np.zeros(3, dtype=int), clients=4, seed=0)


def test_lognormal_sizes_spread_with_sigma():
    labels = np.repeat(np.arange(10), 100)

    def spread(sigma: float) -> float:
        return float(np.std([len(i) for i in lognormal(labels, clients=10, sigma=sigma, alpha=None, seed=0)]))

    assert spread(0.0) == 0.0
    assert spread(1.2) > spread(0.4) > 0


def _log_ratios(sigma: float) -> np.ndarray:
    """log(size of client 0 / size of client 1) over 400 seeds."""
    labels = np.repeat(np.arange(2), 300)
    sizes = [[len(i) for i in lognormal(labels, clients=2, sigma=sigma, alpha=None, seed=s)] for s in range(400)]
    return np.log([first / second for first, second in sizes])


@pytest.mark.parametrize("sigma", [0.4, 0.8])
def test_the_ratio_of_two_sizes_is_log_normal(sigma):
    """Both logarithms are normal with variance sigma^2, so that their difference is with 2 sigma^2."""
    ratios, scale = _log_ratios(sigma), sigma * np.sqrt(2)
    standard_error = scale / np.sqrt(len(ratios))
    assert abs(ratios.mean()) < 4 * standard_error
    assert abs(ratios.std() - scale) < 4 * standard_error / np.sqrt(2)
    assert abs((ratios < 0.6745 * scale).mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / len(ratios))


def test_clients_that_are_not_full_have_equal_chances_of_the_next_sample():
    """A client that lacks one sample waits for 0, 1, 2, ... others with chances 1/2, 1/4, 1/8, ...: 1 on average.

    In a shuffled list of all samples it would wait for 49.5 of the other's 99.
    """
    waits = [list(_turns(np.array([1, 99]), np.random.default_rng(seed))).index(0) for seed in range(800)]
    assert abs(np.mean(waits) - 1) < 4 * np.sqrt(2 / 800)
    assert abs(waits.count(0) / 800 - 1 / 2) < 4 * np.sqrt(1 / 4 / 800)


def test_everyone_gets_as_many_turns_as_samples():
    sizes = np.array([3, 0, 5, 1])
    assert np.bincount(list(_turns(sizes, np.random.default_rng(0))), minlength=4).tolist() == sizes.tolist()


def test_small_clients_are_served_by_their_priors_and_large_ones_take_what_is_left():
    """In a shuffled list of all samples the smallest of ten clients has 0.57 of its samples in one class, not 0.69."""
    labels = np.repeat(np.arange(10), 500)
    shares = []
    for seed in range(40):
        split = Partition("l", lognormal(labels, clients=10, sigma=1.2, alpha=0.1, seed=seed))
        counts = split.class_counts(labels, 10)[np.argsort(split.sizes)[:3]]
        shares.append((counts.max(axis=1) / counts.sum(axis=1)).mean())
    assert abs(np.mean(shares) - 0.687) < 4 * 0.11 / np.sqrt(40)
    assert np.mean(shares) > 0.62


def _chunks(labels, **settings):
    return dirichlet_equal_chunks(labels, **{"together": 10, "retries": 10000, "seed": 0, **settings})


@pytest.mark.parametrize("alpha", [0.5, 0.3, 0.1])
def test_equal_chunks_of_a_dirichlet_split_are_equal_and_as_skewed_as_the_reference(alpha):
    """Means of FedMHO's own function over 12 seeds: the largest class's share of a client, and classes above 1%."""
    share, classes = {0.5: (0.38, 7.1), 0.3: (0.45, 6.0), 0.1: (0.56, 4.1)}[alpha]
    labels = np.repeat(np.arange(10), 600)
    found = []
    for seed in range(12):
        split = Partition("e", _chunks(labels, clients=10, alpha=alpha, seed=seed))
        assert set(split.sizes) == {600}
        shares = split.class_counts(labels, 10) / 600
        found.append((shares.max(axis=1).mean(), (shares >= 0.01).sum(axis=1).mean()))
    assert np.abs(np.mean(found, axis=0) - (share, classes)).max(initial=0, where=[True, False]) < 0.06
    assert np.abs(np.mean(found, axis=0) - (share, classes)).max(initial=0, where=[False, True]) < 0.5


def test_clients_that_do_not_draw_together_have_samples_of_their_own():
    """Alone, a client draws nothing: it has a random quarter. Together, so small an alpha gives each a class."""
    labels = np.repeat(np.arange(4), 300)
    alone, both = (
        Partition("e", _chunks(labels, clients=4, alpha=0.01, together=together)).class_counts(labels, 4)
        for together in (1, 4)
    )
    assert np.abs(alone - 75).max() < 30
    assert both.max(axis=1).min() > 150


def test_a_last_group_may_be_smaller():
    assert set(map(len, _chunks(np.repeat(np.arange(4), 300), clients=12, alpha=1.0))) == {100}


def test_equal_chunks_that_cannot_be_drawn_end_in_a_clear_error():
    with pytest.raises(OneshotError, match=r"partition\.alpha=0\.001: 3 Dirichlet draws .*raise partition\.alpha"):
        _chunks(np.repeat(np.arange(3), 100), clients=10, alpha=0.001, retries=3)


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
        (12, r"partition\.clients: this split needs at least 4 samples, and a domain has 3;"),
    ],
)
def test_clients_that_domains_cannot_be_shared_among(clients, says):
    with pytest.raises(OneshotError, match=says):
        leave_one_domain_out(DOMAINS, domains=DOMAINS, clients=clients, held_out="sketch", seed=0)


def test_what_rounding_leaves_goes_to_the_largest():
    # 1 + floor(weight * 7) are 4, 3 and 2 of 10
    assert _proportional(np.array([0.5, 0.3, 0.2]), 10).tolist() == [5, 3, 2]


@pytest.mark.parametrize("seed", range(10))
def test_a_client_with_its_share_of_all_is_full(seed):
    """At so small an alpha a class is one client's, which has half of everything then."""
    counts = _capped_dirichlet_counts(np.array([10, 10]), 2, 1e-3, np.random.default_rng(seed))
    assert counts.sum(axis=0).tolist() == [10, 10]


def test_a_client_whose_prior_is_used_up_draws_from_what_is_left_by_its_size():
    priors, left = np.array([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]), np.array([0, 3, 1])
    assert _cumulative(priors, left) == [[0.0, 0.75, 1.0], [0.0, 0.5, 1.0]]


def test_equal_chunks_are_cut_of_shares_of_which_the_smallest_is_half_of_the_mean(monkeypatch):
    asked, real = [], partition._capped_dirichlet_draw

    def noted(sizes, clients, alpha, *, least, retries, rng):
        asked.append(least)
        return real(sizes, clients, alpha, least=least, retries=retries, rng=rng)

    monkeypatch.setattr(partition, "_capped_dirichlet_draw", noted)
    labels = np.arange(1000) % 10
    dirichlet_equal_chunks(labels, clients=10, alpha=1.0, together=5, retries=10_000, seed=0)
    assert asked == [50, 50]  # 500 samples of five clients
