import pytest
from torch import nn

from oneshot_fl.models.mode import evaluating


def test_every_module_is_put_back_into_its_own_mode_even_after_an_error():
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout().eval(), nn.Sequential(nn.Dropout()))

    def fail():
        assert [module.training for module in model.modules()] == [False] * 5
        raise ZeroDivisionError

    before = [module.training for module in model.modules()]
    assert before == [True, True, False, True, True]
    with pytest.raises(ZeroDivisionError), evaluating(model):
        fail()
    assert [module.training for module in model.modules()] == before
