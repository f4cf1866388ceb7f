"""How a model begins: by the run's seed and its architecture, clients and server apart."""

import pytest
import torch
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.recipe import Recipe
from oneshot_fl.seeds import seeded
from tests.parts import SMALL


def _linear(*, spec) -> nn.Module:
    return nn.Linear(spec.size, spec.classes)


def _architecture(name: str) -> Architecture:
    return Architecture(Recipe({"_target_": f"{__name__}._linear", "name": name}, _linear, _linear))


def _weight(model: nn.Module) -> torch.Tensor:
    return model.weight.detach()


def test_equal_clients_begin_equal_and_another_seed_or_architecture_begins_elsewhere():
    a, b = _architecture("a"), _architecture("b")
    first = _weight(a.as_clients_begin(SMALL, 0))
    assert first.shape == (3, 8)
    assert torch.equal(first, _weight(a.as_clients_begin(SMALL, 0)))
    assert not torch.equal(first, _weight(a.as_clients_begin(SMALL, 1)))
    assert not torch.equal(first, _weight(b.as_clients_begin(SMALL, 0)))


def test_a_client_that_begins_at_weights_of_its_own_begins_there_again_and_nobody_else_does():
    a = _architecture("a")
    begins = [_weight(a.as_clients_begin(SMALL, 0, client)) for client in (None, 0, 1)]
    assert torch.equal(begins[1], _weight(a.as_clients_begin(SMALL, 0, 0)))
    assert not any(torch.equal(begins[one], begins[other]) for one, other in [(0, 1), (0, 2), (1, 2)])


def test_a_student_has_weights_that_no_client_began_at():
    a = _architecture("a")
    assert torch.equal(_weight(a.student(SMALL, 0)), _weight(a.student(SMALL, 0)))
    assert not torch.equal(_weight(a.student(SMALL, 0)), _weight(a.as_clients_begin(SMALL, 0)))


def test_building_alone_follows_the_global_random_state_and_beginning_leaves_it_alone():
    a = _architecture("a")
    with seeded(3, "anywhere"):
        expected = _weight(nn.Linear(8, 3))
    with seeded(3, "anywhere"):
        a.as_clients_begin(SMALL, 0)
        a.student(SMALL, 0)
        assert torch.equal(_weight(a.build(SMALL)), expected)


def test_an_architecture_has_the_name_that_a_user_chooses_it_by():
    assert _architecture("cnn2").name == "cnn2"


def test_layers_whose_size_only_an_image_tells_are_refused_by_name():
    def lazy(*, spec) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(spec.classes))

    architecture = Architecture(Recipe({"_target_": f"{__name__}.lazy", "name": "lazy"}, lazy, lazy))
    with pytest.raises(
        OneshotError, match=r"^lazy: the size of 1\.weight is not known before an image is seen; .*nn\.Linear"
    ):
        architecture.build(SMALL)
