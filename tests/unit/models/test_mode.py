import pytest
from torch import nn

from oneshot_fl.models.mode import evaluating, frozen


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


def test_what_an_architecture_does_not_train_is_not_trained_after_the_block_either():
    model = nn.Sequential(nn.Linear(1, 1).requires_grad_(False), nn.Linear(1, 1), nn.Dropout().eval())
    with frozen(model):
        assert not any(parameter.requires_grad for parameter in model.parameters())
        assert not any(module.training for module in model.modules())
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, False, True, True]
    assert [module.training for module in model.children()] == [True, True, False]
