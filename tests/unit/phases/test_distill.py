"""What a round of the loop is made of."""

import math
from types import SimpleNamespace

import pytest
import torch

from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.parts.pools import Entry
from oneshot_fl.phases.distill import anneal, frozen, joined
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


def test_batches_of_several_sources_become_one():
    first, second = (Entry(torch.full((n, 1, 2, 2), n), torch.full((n,), n), torch.full((n, 3), n)) for n in (1, 2))
    assert joined([first]) is first
    both = joined([first, second])
    assert both.y.tolist() == [1, 2, 2]
    assert (both.x.shape, both.answers.shape) == ((3, 1, 2, 2), (3, 3))


@pytest.mark.parametrize(("share", "factor"), [(0, 1.0), (0.5, 0.5), (1, 0.0)])
def test_the_learning_rate_follows_half_a_cosine_from_where_it_began(share, factor):
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.2}, {"lr": 0.01, "initial_lr": 0.4}])
    anneal(optimizer, share)
    assert math.isclose(optimizer.param_groups[0]["lr"], 0.2 * factor, abs_tol=1e-12)
    assert math.isclose(optimizer.param_groups[1]["lr"], 0.4 * factor, abs_tol=1e-12)
