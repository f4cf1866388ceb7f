"""Models that may be averaged, and those that must not: of one class, and otherwise in what it was made with."""

from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from oneshot_fl.models.structure import all_alike, noted


class _Scaled(nn.Module):
    def __init__(self, factor: object) -> None:
        super().__init__()
        self.body, self.factor = nn.Linear(64, 3), factor

    def forward(self, x):
        return self.factor * self.body(x.flatten(1))


def test_models_of_other_settings_are_not_stacked_as_one():
    """`torch.func` would run all with the first one's factor."""
    assert all_alike([_Scaled(2.0), _Scaled(2.0).eval()])
    assert not all_alike([_Scaled(2.0), _Scaled(3.0)])


class _Noting(_Scaled):
    """As vision transformers note the size of their last images, and others how often they were asked."""

    asked = 0

    def forward(self, x):
        self.h, self.w = x.shape[-2:]
        self.asked += 1
        return super().forward(x)


def test_what_a_model_notes_of_its_images_is_no_setting():
    new, asked = _Noting(2.0), _Noting(2.0)
    with noted(asked):
        asked(torch.zeros(1, 1, 8, 8))
    assert all_alike([new, asked])
    asked(torch.zeros(1, 1, 8, 8))
    assert all_alike([new, asked, deepcopy(asked)])
    assert not all_alike([new, _Noting(3.0)])


def _leaky(slope: float):
    return lambda x: nn.functional.leaky_relu(x, slope)


FUNCTIONS = {
    "built-in functions": (torch.relu, torch.tanh),
    "classes": (nn.ReLU, nn.Tanh),
    "lambdas of one line": (lambda x: x + 1, lambda x: x + 2),
    "what functions were made with": (_leaky(0.1), _leaky(0.2)),
    "what functions are called with": (partial(_leaky, slope=0.1), partial(_leaky, slope=0.2)),
    "lists of them": ([torch.relu, 1], [torch.tanh, 1]),
}


@dataclass
class _Shape:
    width: int


class _Options:
    def __init__(self, act) -> None:
        self.act = act


class _Act(Enum):
    RELU = "relu"
    TANH = "tanh"


OBJECTS = {
    "dicts": ({"act": "relu"}, {"act": "tanh"}),
    "dicts in dicts": ({"body": {"act": torch.relu}}, {"body": {"act": torch.tanh}}),
    "configurations": (OmegaConf.create({"act": "relu"}), OmegaConf.create({"act": "tanh"})),
    "dataclasses": (_Shape(1), _Shape(2)),
    "namespaces": (SimpleNamespace(act="relu"), SimpleNamespace(act="tanh")),
    "objects": (_Options("relu"), _Options("tanh")),
    "objects in lists": ([_Options(torch.relu)], [_Options(torch.tanh)]),
    "members of enumerations": (_Act.RELU, _Act.TANH),
    "sets": ({"a"}, {"b"}),
    "types of numbers": (None, torch.float16),
    "arrays": (np.zeros(2), np.ones(2)),
}


@pytest.mark.parametrize(("one", "other"), (FUNCTIONS | OBJECTS).values(), ids=FUNCTIONS | OBJECTS)
def test_functions_and_objects_are_settings_too(one, other):
    assert all_alike([_Scaled(one), deepcopy(_Scaled(one))])
    assert not all_alike([_Scaled(one), _Scaled(other)])


def test_what_a_model_has_drawn_or_kept_meanwhile_is_none():
    drawn = [{"of torch": torch.Generator(), "of NumPy": np.random.default_rng(seed)} for seed in (0, 1)]
    kept, fresh = _Scaled({"cache": torch.ones(2), **drawn[0]}), _Scaled(drawn[1])
    kept.register_forward_hook(lambda *_: None)
    assert all_alike([kept, fresh])


def test_a_function_that_holds_itself_is_looked_into_only_so_deep():
    def again(x):
        return again(x)

    assert all_alike([_Scaled(again), _Scaled(again)])


def test_two_classes_that_are_called_alike_are_two_architectures():
    def build():
        class Net(nn.Linear):
            pass

        return Net

    net, namesake = build(), build()
    namesake.__module__ = "elsewhere"
    assert all_alike([net(2, 2), net(2, 2)])
    assert not all_alike([net(2, 2), namesake(2, 2)])
