"""What a model has to do besides answering in the right shape, before others work with it."""

import pytest
import torch
from torch import nn

from oneshot_fl.config.tried import require_teaches
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.described import ModelDescription
from tests.parts import SMALL, FixedLogits

TOLD = ModelDescription("classifier", ({"name": "cnn2"},), SMALL, tuple("abc"))


class _NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise KeyError("no way back")


class _Broken(nn.Linear):
    def __init__(self) -> None:
        super().__init__(SMALL.size**2, SMALL.classes)

    def forward(self, x):
        return super().forward(_NoWayBack.apply(x.flatten(1)))


def test_an_ordinary_classifier_teaches():
    require_teaches(cnn2(SMALL, norm=True).eval(), TOLD, "one")


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (FixedLogits([0.0, 1.0, 2.0]), r"^one: its answers have no gradient, and a server inverts it"),
        (nn.Sequential(cnn2(SMALL, norm=False), nn.Softmax(1)), r"^one: answers with probabilities instead of logits"),
        (_Broken(), r"^one: cannot be asked for gradients \(KeyError: 'no way back'\)$"),
    ],
)
def test_what_nobody_could_learn_from_is_told(model, line):
    with pytest.raises(OneshotError, match=line):
        require_teaches(model.eval(), TOLD, "one")


def test_decoders_are_not_asked():
    decoder = ModelDescription("decoder", ({"name": "cvae_mlp"},), SMALL, tuple("abc"), label_counts=(1, 1, 1))
    require_teaches(_Broken(), decoder, "one")
