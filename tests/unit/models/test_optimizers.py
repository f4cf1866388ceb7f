"""One kernel for all parameters, where an optimiser's class has one and nobody said otherwise."""

from functools import partial

import pytest
import torch
from torch import nn

from oneshot_fl.models.optimizers import fused
from tests.parts import recipe_of

FACTORIES = [
    (partial(torch.optim.SGD, lr=0.1), True),
    (partial(torch.optim.Adam, lr=0.1), True),
    (partial(torch.optim.Adam, lr=0.1, fused=False), False),
    (partial(torch.optim.Adam, lr=0.1, foreach=True), None),
    (partial(torch.optim.SGD, lr=0.1, differentiable=True), None),
    (partial(torch.optim.RMSprop, lr=0.1), None),
    (recipe_of(torch.optim.Adam, lr=0.1), True),
    (recipe_of(torch.optim.Adam, lr=0.1, fused=False), False),
    (recipe_of(torch.optim.RMSprop, lr=0.1), None),
]


@pytest.mark.parametrize(("factory", "expected"), FACTORIES)
def test_an_optimiser_steps_in_one_kernel_where_it_can_and_nobody_minds(factory, expected):
    optimizer = fused(factory)([nn.Parameter(torch.ones(2))])
    assert optimizer.defaults.get("fused") is expected
    assert optimizer.defaults["lr"] == 0.1


def test_the_step_is_the_same():
    weights = [nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    factory = recipe_of(torch.optim.SGD, lr=0.5, momentum=0.9)
    for weight, optimizer in zip(weights, (factory([weights[0]]), fused(factory)([weights[1]])), strict=True):
        for _ in range(2):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
    # 1 - .5 * 2 = 0, then momentum .9 * 2 and gradient 0: 0 - .5 * 1.8 = -.9
    torch.testing.assert_close(weights[0].detach(), torch.tensor([-0.9, 1.8]))
    torch.testing.assert_close(weights[1], weights[0])
