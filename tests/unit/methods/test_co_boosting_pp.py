"""The gate of Co-Boosting++ against numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.methods.co_boosting_pp import GatedExperts, squared_variation
from oneshot_fl.parts.perturbation import Perturbation
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.view import Votes
from oneshot_fl.seeds import torch_generator
from tests.parts import server_of

ONE_PIXEL = DataSpec(1, 1, 2, (0.5,), (0.5,))
CLIENTS = server_of([nn.Identity(), nn.Identity()], spec=ONE_PIXEL)
P = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
"""Client 0 says [2, 0] and client 1 says [0, 2]."""
ALIKE = torch.tensor([[[2.0, 0.0]], [[2.0, 0.0]]])
CLASS_0 = torch.tensor([0])
HALF = torch.full((1, 1, 1, 1), 0.5)


def _gated(**options) -> GatedExperts:
    return GatedExperts(CLIENTS, **{"lr": 0.1, "balance": 0.0, "expert_grad": True} | options)


def _votes(x: torch.Tensor, logits: torch.Tensor = P) -> Votes:
    return Votes(x, CLASS_0, logits, [])


def _pool(ensemble: GatedExperts, logits: torch.Tensor = P, *, rounds: int = 2) -> Pool:
    """As many rounds of one image of class 0, whose pixel is 1/2."""
    pool = Pool(CLIENTS, rounds=None)
    for _ in range(rounds):
        pool.add(Entry(HALF, CLASS_0, ensemble.remember(_votes(HALF, logits)), torch.ones(1)))
    return pool


def test_the_gate_begins_as_the_plain_average():
    assert_close(_gated().weigh(HALF), torch.tensor([[0.5, 0.5]]))
    assert_close(_gated()(_votes(HALF)), torch.tensor([[1.0, 1.0]]))


def test_a_gate_that_has_learned_weighs_by_the_pixel():
    ensemble = _gated()
    ensemble.gate[0].copy_(torch.tensor([[2 * math.log(3.0), 0.0]]))
    # scores [log 3, 0] for a pixel of 1/2: weights 3/4 and 1/4, and the other way round for -1/2
    assert_close(ensemble(_votes(HALF)), torch.tensor([[1.5, 0.5]]))
    assert_close(ensemble(_votes(-HALF)), torch.tensor([[0.5, 1.5]]))
    assert_close(ensemble.recall(_pool(ensemble).entries[0]), torch.tensor([[1.5, 0.5]]))


def test_the_first_step_of_adam_is_lr_against_the_sign_of_the_gradient():
    # CE falls with client 0's weight and rises with client 1's, whatever the noise; the pixel is positive
    ensemble = _gated()
    ensemble.refit(_pool(ensemble), 8, torch_generator(1))
    assert_close(ensemble.gate[0], torch.tensor([[0.1, -0.1]]))
    rng = torch_generator(1)
    torch.randperm(1, generator=rng)
    noise = torch.randn((2, 2), generator=rng)  # the one image is taken twice
    assert noise.sign().tolist() == [[1, -1], [1, -1]]  # it raised client 0's score and lowered client 1's: more of it
    assert_close(ensemble.gate[1], torch.tensor([[0.1, 0.1]]))
    assert_close(ensemble.weigh(HALF)[0, 0], torch.tensor(1 / (1 + math.exp(-0.1))))


def test_the_newest_round_waits():
    ensemble = _gated()
    ensemble.refit(_pool(ensemble, rounds=1), 8, torch_generator(0))
    assert not ensemble.gate.any()


def test_squared_variation_is_the_unbiased_variance_over_the_squared_mean():
    assert_close(squared_variation(torch.tensor([1.0, 3.0])), torch.tensor(2.0 / 4.0))
    assert squared_variation(torch.tensor([7.0])).item() == 0


@pytest.mark.parametrize(("balance", "moved"), [(0.01, 0.1), (0.0, 0.0)])
def test_the_balance_alone_moves_weight_away_from_the_client_that_has_most(balance, moved):
    ensemble = _gated(balance=balance)
    ensemble.gate[0].copy_(torch.tensor([[8.0, 0.0]]))  # scores [4, 0] on an image on which both say the same
    ensemble.refit(_pool(ensemble, torch.zeros(2, 1, 2)), 8, torch_generator(0))
    assert_close(ensemble.gate[0], torch.tensor([[8.0 - moved, moved]]), atol=1e-3, rtol=0)


def test_what_adam_remembers_is_saved_with_the_gate():
    at_once, saved, resumed = _gated(), _gated(), _gated()
    for seed in (0, 1):
        at_once.refit(_pool(at_once), 8, torch_generator(seed))
    saved.refit(_pool(saved), 8, torch_generator(0))
    resumed.load_state_dict({name: tensor.clone() for name, tensor in saved.state_dict().items()})
    resumed.refit(_pool(resumed), 8, torch_generator(1))
    assert resumed.steps.item() == 2
    assert torch.equal(resumed.gate, at_once.gate)


@pytest.mark.parametrize("expert_grad", [True, False])
def test_while_the_gate_is_zero_labels_reach_images_through_the_clients_only(expert_grad):
    ensemble = _gated(expert_grad=expert_grad)
    x = HALF.clone().requires_grad_()
    F.cross_entropy(ensemble(_votes(x, x.view(1, 1, 1) * ALIKE)), CLASS_0).backward()
    # M = [2 x, 0] = [1, 0]: dCE/dx = -2 (1 - sigmoid(1))
    expected = -2 / (1 + math.e) if expert_grad else 0.0
    assert_close(x.grad.item(), expected)


@pytest.mark.parametrize(("expert_grad", "moves"), [(True, True), (False, False)])
def test_as_the_code_is_no_image_is_perturbed_before_the_gate_has_learned(expert_grad, moves):
    ensemble = _gated(expert_grad=expert_grad)
    perturb = Perturbation(CLIENTS, epsilon=0.1, direction="sign")
    moved = perturb(HALF, lambda x: ensemble(_votes(x, x.view(1, 1, 1) * ALIKE)), perturb.draw(1, torch_generator(0)))
    assert (moved != HALF).item() is moves


def test_noise_is_scaled_by_softplus_and_never_less_than_a_hundredth():
    noise = torch.randn((1, 2), generator=torch_generator(3))
    expected = (noise * (math.log(2) + 0.01)).softmax(dim=1)  # the softplus of 0
    assert_close(_gated()._weigh_noisily(HALF, torch_generator(3)), expected)
