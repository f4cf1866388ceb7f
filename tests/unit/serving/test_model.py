import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.serving.model import AT_ONCE, ServedModel

SPEC = DataSpec(1, 2, 2, (0.5,), (0.5,))


class Brightness(nn.Module):
    """`[0, mean]` of normalised images as logits: white is 1, black -1."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        level = x.flatten(1).mean(1) * self.scale
        return torch.stack([level * 0, level], dim=1)


def _served(temperature=1.0, **told):
    return ServedModel(Brightness(), SPEC, ("dark", "bright"), temperature=temperature, **told)


WHITE = torch.full((1, 2, 2), 255, dtype=torch.uint8)


class Buffered(nn.Module):
    """The same without a parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    forward = Brightness.forward


def test_a_model_without_parameters_answers_too():
    served = ServedModel(Buffered(), SPEC, ("dark", "bright"), temperature=1.0)
    assert [one.label for one in served.predict(WHITE)] == ["bright"]


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_a_model_in_another_precision_is_given_images_in_it(kind):
    model = nn.Sequential(nn.Conv2d(1, 1, 1), Brightness())
    nn.init.ones_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    served = ServedModel(model, SPEC, ("dark", "bright"), temperature=1.0).to(kind)
    (found,) = served.predict(WHITE)
    assert found.probability == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-3)


def test_called_with_a_tensor_it_is_the_model_itself():
    x = torch.ones(3, 1, 2, 2)
    assert _served(temperature=4.0)(x).tolist() == Brightness()(x).tolist()


def test_a_prediction_is_normalised_calibrated_and_named():
    (found,) = _served(temperature=0.5).predict(WHITE)
    expected = 1 / (1 + math.exp(-2))  # logits 0 and 1, divided by one half
    assert found.label == "bright"
    assert found.probability == pytest.approx(expected)
    assert found.probabilities == {"dark": pytest.approx(1 - expected), "bright": pytest.approx(expected)}


def test_a_model_in_training_mode_answers_as_in_evaluation_mode_and_is_left_as_it_was():
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(), Brightness())
    served = ServedModel(model, SPEC, ("dark", "bright"), temperature=1.0).train()
    model[1].eval()
    answers = [one.probabilities["bright"] for one in served.predict([WHITE, WHITE])]
    # running mean 0 and variance 1 leave white at 1, or nearly; both images alone are their batch's mean, which is 0
    assert answers == pytest.approx([1 / (1 + math.exp(-1))] * 2, abs=1e-4)
    assert (model[0].num_batches_tracked.item(), model[0].running_mean.item()) == (0, 0.0)
    assert [each.training for each in (served, *model)] == [True, True, False, True]


def test_transparent_pixels_lie_on_what_they_lay_on_in_training(tmp_path):
    Image.new("LA", (2, 2), (0, 0)).save(tmp_path / "clear.png")
    labels = [_served().predict(tmp_path / "clear.png", background=grey)[0].label for grey in (0, 255)]
    assert labels == ["dark", "bright"]


def test_tones_are_those_of_training_unless_others_are_named(tmp_path):
    Image.new("LA", (2, 2), (0, 0)).save(tmp_path / "clear.png")
    Image.fromarray(np.full((2, 2), 1000, np.uint16)).save(tmp_path / "deep.png")
    served = _served(tones=Tones(max_value=1000, background=255))
    bright, dark = 1 / (1 + math.exp(-1)), 0.5  # white is 1 in the model's units, half of white is 0
    for named, clear, deep in (({}, bright, bright), ({"background": 0, "max_value": 2000}, 1 - bright, dark)):
        found = {one.image[-8:]: one.probabilities["bright"] for one in served.predict(tmp_path, **named)}
        assert found["lear.png"] == pytest.approx(clear, abs=0.01)
        assert found["deep.png"] == pytest.approx(deep, abs=0.01)


def test_below_the_threshold_no_class_is_named():
    probability = _served().predict(WHITE)[0].probability
    assert _served().predict(WHITE, abstain=probability)[0].label == "bright"
    (silent,) = _served().predict(WHITE, abstain=probability + 1e-9)
    assert (silent.label, silent.probability) == (None, probability)


WRONG = {
    "abstain": (60, -0.1, math.nan, None, "0.5", True),
    "max_value": (math.nan, math.inf, 0, -1, "white", torch.tensor(math.nan)),
    "background": (300, -1, 1.5, "grey", np.int64(256)),
}
RANGES = {"abstain": "a number from 0 to 1", "max_value": "a number above 0", "background": "a whole number from 0 "}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_an_argument_out_of_its_range_is_refused_before_any_image_is_read(name, value):
    for ask in (_served().predict, _served().answers):
        with pytest.raises(OneshotError, match=f"^{name}=.*: must be {RANGES[name]}"):
            ask("/nowhere.png", **{name: value})


def test_numbers_of_other_libraries_are_numbers():
    deep = Image.fromarray(np.full((2, 2), 1000, np.uint16))
    for white in (np.uint16(1000), np.float32(1000), torch.tensor(1000)):
        (found,) = _served().predict(deep, max_value=white, background=np.uint8(0), abstain=np.float32(0.5))
        assert found.label == "bright"


def test_more_images_than_a_batch_keep_their_order_among_those_that_cannot_be_used(tmp_path):
    bad = tmp_path / "0.png"
    bad.write_text("")
    images = [WHITE] * AT_ONCE + [bad] + [torch.zeros_like(WHITE)]
    answers = list(_served().answers(images))
    assert [getattr(one, "label", "bad") for one in answers] == ["bright"] * AT_ONCE + ["bad", "dark"]
    with pytest.raises(OneshotError, match=r"0\.png is not a readable image"):
        _served().predict(images)


def test_images_of_a_batch_are_answered_whatever_else_was_named(tmp_path):
    answers = list(_served().answers([WHITE, tmp_path / "absent.png", torch.zeros_like(WHITE)]))
    assert [getattr(one, "label", "absent") for one in answers] == ["bright", "absent", "dark"]
    with pytest.raises(OneshotError, match=r"absent\.png: there is no such file"):
        _served().predict([WHITE, tmp_path / "absent.png"])
