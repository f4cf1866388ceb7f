"""A gate's mixture, and whom a gradient passes through."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from oneshot_fl.parts.mixtures import Gated, mixture, pixels, products
from oneshot_fl.parts.view import Votes
from tests.parts import SMALL, server_of

P = torch.tensor([[[2.0, 0.0]], [[0.0, 4.0]]])
"""Client 0 says [2, 0] and client 1 says [0, 4] to one image."""


class _FirstPixel(Gated):
    """Client 0 weighs as much as the first pixel, client 1 as much as the second."""

    def weigh(self, x):
        return x.flatten(1) * self.gate

    def refit(self, pool, batch_size, rng):
        raise AssertionError("nobody asked for it")


def test_every_image_has_its_own_weights():
    P_of_two = P.expand(2, 2, 2)
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    assert_close(mixture(P_of_two, weights), torch.tensor([[0.5, 3.0], [2.0, 0.0]]))


def test_products_are_exact_in_mixed_precision():
    x, matrix = torch.tensor([[[[1.0, 2.0**-9]]]]), torch.ones(2, 1)
    with torch.autocast("cpu", torch.bfloat16):
        assert products(x, matrix).item() == 1 + 2.0**-9  # bf16 keeps 8 bits
    assert pixels(server_of()) == 64


@pytest.mark.parametrize("expert_grad", [True, False])
def test_a_gradient_reaches_the_images_through_the_gate_and_if_wanted_through_the_clients(expert_grad):
    gated = _FirstPixel(server_of(), torch.ones(2), expert_grad=expert_grad)
    x = torch.tensor([[[[0.5, 0.25]]]], requires_grad=True)
    said = (3 * x).view(1, 1, 2) * P  # client 0 says [6 x0, 0], client 1 says [0, 12 x1]
    answer = gated(Votes(x, torch.zeros(1).long(), said, []))
    assert_close(answer.detach(), torch.tensor([[0.5 * 3.0, 0.25 * 3.0]]))
    answer.sum().backward()
    # of x * a x: a x through the gate and as much again through the client
    assert_close(x.grad.flatten(), torch.tensor([3.0, 3.0]) * (2 if expert_grad else 1))


def test_only_who_learns_computes_gradients_for_the_gate():
    gated = _FirstPixel(server_of(), torch.ones(2), expert_grad=True)
    assert not gated.gate.requires_grad
    with gated.learning():
        assert gated.gate.requires_grad
    assert not gated.gate.requires_grad


def test_a_client_without_an_output_for_a_class_has_no_say_in_the_mixture():
    server = server_of([torch.nn.Identity()] * 2, spec=replace(SMALL, classes=2), unknown=[(), (1,)])
    gated = _FirstPixel(server, torch.ones(2), expert_grad=True)
    said = torch.tensor([[[2.0, 4.0]], [[6.0, -9.0]]])  # what stands for class 1 in client 1's is nobody's word
    heard = gated.heard(said)
    assert not torch.equal(heard, said)
    x = torch.tensor([[[[0.5, 0.25]]]])
    assert_close(gated(Votes(x, torch.zeros(1).long(), said, [])), mixture(heard, torch.tensor([[0.5, 0.25]])))
