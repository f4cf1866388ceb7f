import math

import pytest
import torch
from torch.nn import functional as F

from oneshot_fl.parts.recitals import DOUBTED
from oneshot_fl.phases.calibrate import calibrate, temperature
from tests.parts import FixedLogits


def test_the_temperature_makes_a_model_as_sure_as_it_is_right():
    """Always the same answer at odds of 9 to 1, right in three of four cases: odds of 3 to 1."""
    logits, labels = torch.tensor([[math.log(9), 0.0]]).expand(4, -1), torch.tensor([0, 0, 0, 1])
    assert temperature(logits, labels) == pytest.approx(math.log(9) / math.log(3), rel=1e-3)


def test_the_temperature_is_the_lowest_of_a_fine_grid():
    logits = torch.randn(300, 4) * 6
    y = torch.multinomial((logits / 3).softmax(1), 1).squeeze(1)
    grid = torch.linspace(0.5, 8, 1000).tolist()
    losses = [float(F.cross_entropy(logits / t, y)) for t in grid]
    assert temperature(logits, y) == pytest.approx(grid[losses.index(min(losses))], rel=0.02)


SURE = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 50)


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (SURE, [0, 1] * 50),
        (torch.cat([SURE, torch.tensor([[0.5, 0.5]])]), [0, 1] * 50 + [1]),  # by a hair, of a hundred
        (torch.tensor([[3.0]] * 4), [0] * 4),
    ],
)
def test_images_that_are_all_known_do_not_tell_how_sure_to_be(logits, labels, spec):
    assert temperature(logits, torch.tensor(labels)) is None


def test_a_model_without_a_temperature_is_not_calibrated(spec):
    images, labels = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0])
    assert calibrate(FixedLogits([1.0, 0.0, 0.0]), images, labels, torch.ones(2), spec=spec, batch_size=3) is None


def test_labels_no_better_than_chance_make_a_model_doubt_as_far_as_is_sought():
    assert temperature(SURE, torch.tensor([1, 0] * 50)) == pytest.approx(math.exp(4), rel=1e-3)


def test_it_is_fitted_on_every_synthetic_image(spec):
    model, labels = FixedLogits([math.log(9), 0.0, -50.0]), torch.tensor([0, 0, 0, 1])
    trust = torch.tensor([0.0, 0.0, 1.0, 0.0])  # that of one is enough
    found = calibrate(model, torch.zeros(4, 1, 8, 8, dtype=torch.uint8), labels, trust, spec=spec, batch_size=3)
    assert found.images == 4
    assert found.temperature == pytest.approx(2, rel=1e-3)


def test_images_that_do_not_show_what_they_were_made_for_say_nothing_of_the_model(spec):
    model, labels = FixedLogits([math.log(9), 0.0, -50.0]), torch.tensor([0, 0, 0, 1, 2, 2])
    images, trust = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.tensor([0.0, 0.0, 1.0, 0.0, DOUBTED, DOUBTED])
    found = calibrate(model, images, labels, trust, spec=spec, batch_size=3)
    assert found.images == 4
    assert found.temperature == pytest.approx(2, rel=1e-3)
    assert calibrate(model, images[4:], labels[4:], trust[4:], spec=spec, batch_size=3) is None


def test_labels_that_are_all_guessed_tell_nothing(spec):
    model, labels = FixedLogits([math.log(9), 0.0, -50.0]), torch.tensor([0, 0, 0, 1])
    images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    assert calibrate(model, images, labels, torch.zeros(4), spec=spec, batch_size=3) is None


def test_a_method_without_images_is_not_calibrated(spec):
    assert calibrate(FixedLogits([1.0, 0.0, 0.0]), None, None, None, spec=spec, batch_size=3) is None
