"""What may not be stored is named."""

import pytest
import torch
from torch import nn

from oneshot_fl.models.soundness import first_not_finite, first_unsound


@pytest.mark.parametrize(("value", "unsound", "not_finite"), [(1.0, "", ""), (0.0, "0.running_var", "")])
def test_a_running_variance_has_to_be_above_0(value, unsound, not_finite):
    model = nn.Sequential(nn.BatchNorm1d(2))
    model[0].running_var[1] = value
    assert (first_unsound(model), first_not_finite(model)) == (unsound, not_finite)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_tensor_has_to_be_finite(value):
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[0].bias.data[1] = value
    assert first_unsound(model) == first_not_finite(model) == "0.bias"
