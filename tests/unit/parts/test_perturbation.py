"""Eq. 10 of Co-Boosting against numbers worked out by hand."""

import torch
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.parts.perturbation import Perturbation
from oneshot_fl.seeds import torch_generator
from tests.parts import server_of


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


def test_the_codes_answer_is_softened_by_4():
    """Answers [8 + x0, x1, x2]: softmax of a quarter is [0.787, 0.107, 0.107], of the whole [0.999, 0, 0]."""
    spec = DataSpec(1, 1, 3, (0.5,), (0.5,))
    u = torch.tensor([[0.5, 0.45, -1.0]])

    def teacher(x):
        return x.flatten(1) + torch.tensor([8.0, 0.0, 0.0])

    moved = Perturbation(server_of(spec=spec), epsilon=0.1, direction="sign")(torch.zeros(1, 1, 1, 3), teacher, u)
    # d(u.p)/dz_i = p_i (u_i - u.p) / 4, and u.p = 0.33: below 0.45; of the whole it would be 0.4995
    assert_close(moved.flatten(), 0.2 * torch.tensor([1.0, 1.0, -1.0]))


def test_every_image_takes_a_step_of_its_own():
    spec = DataSpec(1, 1, 2, (0.5,), (0.5,))
    u = torch.tensor([[1.0, 0.5], [0.1, 0.0]])
    perturb = Perturbation(server_of(spec=spec), epsilon=0.1, direction="gradient")
    moved = perturb(torch.zeros(2, 1, 1, 2), _linear_teacher, u)
    # gradients (1, 1) and (0.1, 0), each by its own length
    assert_close(moved.flatten(1), 0.2 * torch.tensor([[0.5**0.5, 0.5**0.5], [1.0, 0.0]]))


def test_random_vectors_are_uniform_from_minus_one_to_one():
    drawn = Perturbation(server_of(), epsilon=0.1, direction="sign").draw(1000, torch_generator(0))
    assert drawn.shape == (1000, 3)
    assert -1 <= drawn.min() < -0.99
    assert 0.99 < drawn.max() <= 1
