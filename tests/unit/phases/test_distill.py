"""What a round of the loop is made of."""

import torch

from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.phases.distill import frozen
from tests.parts import SMALL


def test_frozen_blocks_gradients_and_running_statistics_and_then_lets_go():
    model = cnn2(SMALL, norm=True)
    before = model[1].running_mean.clone()
    with frozen(model):
        x = torch.randn(4, 1, 8, 8, requires_grad=True)
        model(x).sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(model[1].running_mean, before)
    assert model.training
