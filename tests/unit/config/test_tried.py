"""What a model has to do besides answering in the right shape, before others work with it."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from oneshot_fl.config.described import architectures, build
from oneshot_fl.config.tried import require_memory, require_runs, require_teaches, require_whole
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import CVAE, mlp
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.memory import bytes_held
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
        (nn.Sequential(cnn2(SMALL, norm=False), nn.Sigmoid()), r"^one: answers with probabilities instead of logits"),
        (_Broken(), r"^one: cannot be asked for gradients \(KeyError: 'no way back'\)$"),
    ],
)
def test_what_nobody_could_learn_from_is_told(model, line):
    with pytest.raises(OneshotError, match=line):
        require_teaches(model.eval(), TOLD, "one")


class _Moody(nn.Module):
    """Drops features also where nobody trains it."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = cnn2(SMALL, norm=False)

    def forward(self, x):
        return nn.functional.dropout(self.whole(x), 0.5, True)


def test_a_model_that_answers_otherwise_every_time_is_told():
    torch.manual_seed(0)
    with pytest.raises(
        OneshotError, match=r"^one: its model answers the same images otherwise every time, .*self\.training"
    ):
        require_runs(_Moody().eval(), TOLD, (), "one")
    no_numbers = FixedLogits([float("nan"), 1.0, 2.0])
    require_runs(no_numbers.eval(), TOLD, (), "one")


class ByBatch(nn.Linear):
    """Takes the mean of all images from each."""

    def __init__(self) -> None:
        super().__init__(SMALL.size**2, SMALL.classes)

    def forward(self, x):
        return super().forward((x - x.mean(dim=0)).flatten(1))


def test_a_model_whose_answer_to_an_image_hangs_on_the_others_is_told(capsys):
    told = replace(TOLD, architectures=({"_target_": f"{__name__}.ByBatch"},))
    known = architectures(told, allow=[f"{__name__}.ByBatch"])
    require_runs(ByBatch().eval(), told, known, "one")
    assert "oneshot_fl: one: answers an image otherwise beside others" in capsys.readouterr().err


def test_one_answer_for_two_classes_is_told_with_the_remedy():
    one = nn.Sequential(nn.Flatten(), nn.Linear(SMALL.size**2, 1)).eval()
    two = replace(TOLD, class_names=("a", "b"), spec=replace(SMALL, classes=2))
    with pytest.raises(OneshotError, match=r"class_names names 2, the model answers 1; let it answer both: torch\.cat"):
        require_runs(one, two, (), "one")


class _OwnVAE(CVAE):
    """A VAE whose decoder may shift its images by numbers that no file holds."""

    def __init__(self, shifted: bool) -> None:
        whole = mlp(SMALL, latent=2, hidden=4)
        super().__init__(whole.encoder, _Shifted(whole.decoder) if shifted else whole.decoder, latent=2)


class _Shifted(nn.Module):
    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder, self.own = decoder, torch.rand(SMALL.size)

    def forward(self, noise, labels):
        return (self.decoder(noise, labels) + self.own) / 2


@pytest.mark.parametrize("shifted", [False, True])
def test_a_decoder_with_numbers_that_no_file_holds_is_told(shifted):
    told = replace(TOLD, kind="decoder", architectures=({"_target_": f"{__name__}._OwnVAE", "shifted": shifted},))
    own = [f"{__name__}._OwnVAE"]
    with nullcontext() if not shifted else pytest.raises(OneshotError, match=r"^one: computes with numbers"):
        require_whole(build(told, allow=own).eval(), told, architectures(told, allow=own), "one")


def test_decoders_are_not_asked():
    decoder = ModelDescription("decoder", ({"name": "cvae_mlp"},), SMALL, tuple("abc"), label_counts=(1, 1, 1))
    require_teaches(_Broken(), decoder, "one")


def _limited(monkeypatch, there: int) -> None:
    monkeypatch.setattr("oneshot_fl.config.tried.memory_here", lambda: there)


def test_a_model_may_take_half_of_the_memory(monkeypatch):
    # without gradients the convolution's answers, 64 channels of 2 images of 8x8, and their means
    model = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))
    needed = 4 * 2 * 64 * (64 + 1)
    _limited(monkeypatch, 2 * needed)
    require_memory(model.eval(), TOLD, (), "one", gradients=False)
    _limited(monkeypatch, 2 * needed - 1)
    with pytest.raises(OneshotError, match=r"^one: its model needs .* for 2 images of 1x8x8, more than half of "):
        require_memory(model, TOLD, (), "one", gradients=False)


def test_gradients_count_where_they_are_asked_for(monkeypatch):
    layers = (layer for _ in range(10) for layer in (nn.Conv2d(1, 1, 3, padding=1), nn.Tanh()))
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(SMALL.size**2, SMALL.classes)).eval()
    _limited(monkeypatch, 2 * 9 * 2 * 4 * SMALL.size**2)  # twice what nine layers answer
    require_memory(model, TOLD, (), "one", gradients=False)  # two of them at once
    with pytest.raises(OneshotError, match=r"^one: its model needs "):
        require_memory(model, TOLD, (), "one", gradients=True)  # ten are kept


def test_a_decoder_needs_memory_too_and_nobody_asks_it_for_gradients(monkeypatch):
    told = ModelDescription("decoder", ({"name": "cvae_mlp"},), SMALL, tuple("abc"), label_counts=(1, 1, 1))
    known, decoder = architectures(told), build(told).eval()
    limits = []
    monkeypatch.setattr("oneshot_fl.config.tried.bytes_held", lambda *given: limits.append(bytes_held(*given)) or 0)
    for gradients in (False, True):
        require_memory(decoder, told, known, "one", gradients=gradients)
    monkeypatch.undo()
    assert limits[0] == limits[1]
    _limited(monkeypatch, 2 * limits[0] - 1)
    with pytest.raises(OneshotError, match=r"^one: its model needs .* for 2 images of 1x8x8"):
        require_memory(decoder, told, known, "one", gradients=True)
