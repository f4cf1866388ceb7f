"""Eqs. 2, 5, 6, 10 and 12 of Co-Boosting against numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.methods.co_boosting import BoostedWeights, HardCrossEntropy, Perturbation
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.seeds import torch_generator
from tests.parts import server_of, votes_of

LOG3 = math.log(3.0)


class _View:
    """The ensemble gives the label's class 3/4."""

    y = torch.tensor([0])

    def __init__(self):
        self.teacher = torch.tensor([[LOG3, 0.0]], requires_grad=True)


def _entry(ensemble: BoostedWeights, logits: torch.Tensor, y: torch.Tensor) -> Entry:
    """What the pool keeps of a batch of black images."""
    return Entry(torch.zeros(len(y), 1, 1, 1), y, ensemble.remember(votes_of(logits, y)), torch.ones(len(y)))


def test_eqs_5_and_6_weigh_a_sample_by_its_difficulty():
    assert_close(HardCrossEntropy(1.0, power=1.0)(_View()), torch.tensor(0.25 * math.log(4 / 3)))
    assert_close(HardCrossEntropy(1.0, power=0.0)(_View()), torch.tensor(math.log(4 / 3)))


def test_the_difficulty_is_not_trained():
    view = _View()
    HardCrossEntropy(1.0, power=1.0)(view).backward()
    # (1 - p) times the gradient of the cross-entropy, which is p - onehot
    assert_close(view.teacher.grad, 0.25 * torch.tensor([[-0.25, 0.25]]))


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


def _linear_teacher(x: torch.Tensor) -> torch.Tensor:
    flat = x.flatten(1)  # two pixels; answers [x0, 2 x1]
    return torch.stack([flat[:, 0], 2 * flat[:, 1]], dim=1)


def _draws() -> torch.Tensor:
    return 2 * torch.rand((1, 2), generator=torch_generator(4)) - 1


def test_eq_10_goes_epsilon_along_the_unit_gradient_in_pixels():
    # u^T A = u0 x0 + 2 u1 x1: the gradient is (u0, 2 u1); std = 1/2 makes one pixel two units of the input
    spec = DataSpec(1, 1, 2, (0.5,), (0.5,))
    x = torch.zeros(1, 1, 1, 2)
    moved = Perturbation(server_of(spec=spec), epsilon=0.1, direction="gradient")(x, _linear_teacher, _draws())
    gradient = _draws()[0] * torch.tensor([1.0, 2.0])
    assert_close(moved.flatten(), 2 * 0.1 * gradient / gradient.norm())


def test_the_codes_variant_takes_the_sign_of_the_softened_answers_gradient():
    spec = DataSpec(1, 1, 2, (0.5,), (0.5,))
    moved = Perturbation(server_of(spec=spec), epsilon=0.1, direction="sign")(
        torch.zeros(1, 1, 1, 2), _linear_teacher, _draws()
    )
    # softmax(0) = [.5, .5]: d(u.p)/dlogit0 = (u0 - u1) / 16, d/dlogit1 = -(u0 - u1) / 16
    u0, u1 = _draws()[0]
    sign = torch.sign(u0 - u1)
    assert_close(moved.flatten(), 0.2 * torch.stack([sign, -sign]))
