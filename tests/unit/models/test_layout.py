"""Models of somebody else run in the layout that they know, all others in the faster one."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.layout import to_channels_last
from tests.parts import SMALL, recipe_of

IMAGES = torch.rand(2, SMALL.channels, SMALL.size, SMALL.size)


class _Net(nn.Module):
    """A convolution and a linear layer; what is between them is `view`, as in many a tutorial, or `flatten`."""

    def __init__(self, spec, *, view: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(spec.channels, 4, 3, padding=1)
        self.linear = nn.Linear(4 * spec.size**2, spec.classes)
        self.view = view

    def forward(self, x):
        x = self.conv(x)
        return self.linear(x.view(len(x), -1) if self.view else x.flatten(1))


def _built(*, view: bool) -> nn.Module:
    return Architecture(recipe_of(_Net, name="net", view=view)).build(SMALL)


def _is_channels_last(model: nn.Module) -> bool:
    answer = model.conv(IMAGES)
    return answer.is_contiguous(memory_format=torch.channels_last) and not answer.is_contiguous()


def test_a_view_fails_in_the_other_layout():
    model = _Net(SMALL, view=True)
    to_channels_last(model)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        model(IMAGES)


@pytest.mark.parametrize("copied", [False, True])
def test_what_would_fail_keeps_its_layout_also_inside_others_and_answers_as_before(copied):
    model = _built(view=True)
    before = model(IMAGES)
    model = deepcopy(model) if copied else model
    to_channels_last(nn.ModuleList([model]))
    assert not _is_channels_last(model)
    images = torch.rand(2, 4, *IMAGES.shape[2:]).to(memory_format=torch.channels_last)[:, :1]
    torch.testing.assert_close(model(IMAGES), before)
    assert model(images).shape == (2, SMALL.classes)


def test_what_runs_in_any_layout_gets_the_faster_one():
    model = _built(view=False)
    before = model(IMAGES)
    to_channels_last(model)
    assert _is_channels_last(model)
    torch.testing.assert_close(model(IMAGES), before)


def test_the_trial_draws_nothing():
    torch.manual_seed(0)
    _Net(SMALL, view=True)
    expected = torch.rand(3)
    torch.manual_seed(0)
    _built(view=True)
    assert torch.equal(torch.rand(3), expected)
