"""Eqs. 2 and 12 of Co-Boosting against numbers worked out by hand."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.methods.co_boosting import BoostedWeights
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.seeds import torch_generator
from tests.parts import server_of, votes_of


def _entry(ensemble: BoostedWeights, logits: torch.Tensor, y: torch.Tensor) -> Entry:
    """What the pool keeps of a batch of black images."""
    return Entry(torch.zeros(len(y), 1, 1, 1), y, ensemble.remember(votes_of(logits, y)), torch.ones(len(y)))


def _boosted(**options) -> BoostedWeights:
    settings = {"step": 0.1, "decay": 1.0, "per": "round", "include_newest": True, "normalise": False} | options
    return BoostedWeights(server_of([nn.Identity(), nn.Identity()]), **settings)


# Client 0 says [2, 0] and client 1 says [0, 2] to one image of class 0.
P = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
Y = torch.tensor([0])


def _pool(ensemble: BoostedWeights, rounds: int = 1) -> Pool:
    pool = Pool(server_of(), rounds=None)
    for _ in range(rounds):
        pool.add(Entry(torch.zeros(1, 1, 1, 1), Y, ensemble.remember(votes_of(P, Y)), torch.ones(1)))
    return pool


def test_eq_2_starts_as_the_plain_average():
    assert_close(_boosted()(votes_of(P, Y)), torch.tensor([[1.0, 1.0]]))


def test_eq_12_moves_each_weight_by_mu_against_the_sign_of_the_gradient():
    # softmax([1, 1]) = [.5, .5]: d/dw_0 = (.5 - 1) * 2 = -1, d/dw_1 = .5 * 2 = 1
    ensemble = _boosted()
    ensemble.refit(_pool(ensemble), 8, torch_generator(0))
    assert_close(ensemble.weights, torch.tensor([0.6, 0.4]))
    assert_close(ensemble.recall(_entry(ensemble, P, Y)), torch.tensor([[1.2, 0.8]]))


def test_normalised_weights_sum_to_one_in_the_answer():
    ensemble = _boosted(normalise=True)
    ensemble.weights.copy_(torch.tensor([0.6, 0.2]))
    assert_close(ensemble(votes_of(P, Y)), torch.tensor([[1.5, 0.5]]))


@pytest.mark.parametrize(("include_newest", "steps"), [(True, 2), (False, 1)])
def test_a_step_a_batch_with_or_without_the_newest_round(include_newest, steps):
    ensemble = _boosted(per="batch", include_newest=include_newest, step=0.05)
    ensemble.weights.copy_(torch.tensor([0.5, 0.5]))
    pool = Pool(server_of(), rounds=None)
    for _ in range(2):
        pool.add(_entry(ensemble, P.repeat(1, 2, 1), Y.repeat(2)))
    ensemble.refit(pool, 2, torch_generator(0))
    assert_close(ensemble.weights, torch.tensor([0.5 + 0.05 * steps, 0.5 - 0.05 * steps]))


def test_a_step_of_0_leaves_the_plain_average():
    ensemble = _boosted(step=0, decay=0.5)
    ensemble.refit(_pool(ensemble), 1, torch_generator(0))
    assert ensemble.weights.tolist() == [0.5, 0.5]


def test_mu_decays_every_round_also_before_there_is_anything_to_learn_from():
    ensemble = _boosted(decay=0.5, include_newest=False)
    ensemble.refit(_pool(ensemble), 8, torch_generator(0))
    assert_close(ensemble.weights, torch.tensor([0.5, 0.5]))
    ensemble.refit(_pool(ensemble, rounds=2), 8, torch_generator(0))
    assert_close(ensemble.weights, torch.tensor([0.55, 0.45]))


def test_weights_stay_in_the_unit_interval_and_never_all_reach_zero():
    ensemble = _boosted(step=5.0)
    ensemble.refit(_pool(ensemble), 8, torch_generator(0))
    assert ensemble.weights.tolist() == [1.0, 0.0]
    both_wrong = _boosted(step=5.0)
    pool = Pool(server_of(), rounds=None)
    wrong = torch.tensor([[[0.0, 2.0]], [[0.0, 2.0]]])  # both weights' gradients are positive
    pool.add(_entry(both_wrong, wrong, Y))
    both_wrong.refit(pool, 8, torch_generator(0))
    assert_close(both_wrong.weights, torch.tensor([0.5, 0.5]))


def test_the_sum_that_divides_the_weights_is_trained_too():
    # client 0 says [2, 0], client 1 [1, 0], w = [1/2, 1/2]: dA_0/dw = [2 - 3/2, 1 - 3/2], so that client 1 loses weight
    ensemble, pool = _boosted(normalise=True), Pool(server_of(), rounds=None)
    pool.add(_entry(ensemble, torch.tensor([[[2.0, 0.0]], [[1.0, 0.0]]]), Y))
    ensemble.refit(pool, 8, torch_generator(0))
    assert_close(ensemble.weights, torch.tensor([0.6, 0.4]))
