import functools

import pytest
import torch

from oneshot_fl.models.optimizers import fused
from tests.conftest import recipe_of


@pytest.mark.parametrize("made_by", [recipe_of, functools.partial])
@pytest.mark.parametrize(
    ("target", "settings", "expected"),
    [
        (torch.optim.SGD, {}, True),
        (torch.optim.Adam, {}, True),
        (torch.optim.Adam, {"fused": False}, False),
        (torch.optim.RMSprop, {}, None),
    ],
)
def test_an_optimiser_steps_in_one_kernel_where_it_can_and_nobody_minds(target, settings, expected, made_by):
    optimizer = fused(made_by(target, lr=0.1, **settings))([torch.nn.Parameter(torch.ones(2))])
    assert optimizer.defaults.get("fused") is expected
    assert optimizer.defaults["lr"] == 0.1
