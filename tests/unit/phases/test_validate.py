import math

import pytest
import torch

from oneshot_fl.errors import OneshotError
from oneshot_fl.phases.validate import validate
from tests.parts import SMALL, FixedLogits

CPU = torch.device("cpu")


class _ByBrightness(torch.nn.Module):
    """Says class 0 of dark images and class 1 of bright ones."""

    def __init__(self, sure=20.0):
        super().__init__()
        self.sure = torch.nn.Parameter(torch.tensor(sure))

    def forward(self, x):
        bright = (x.flatten(1).mean(1) > 0).float()
        return self.sure * torch.stack([1 - bright, bright, torch.zeros_like(bright) - 1], dim=1)


def _uniform(votes):
    return votes.P.mean(0)


@pytest.fixture
def images():
    return torch.cat([torch.zeros(3, 1, 8, 8), torch.full((5, 1, 8, 8), 255)]).to(torch.uint8)


def _validate(images, student, clients, ensemble=_uniform):
    return validate(images, student, clients, ensemble, of="synthetic", spec=SMALL, batch_size=3, device=CPU)


def test_a_student_that_says_what_its_ensemble_says(images):
    found = _validate(images, _ByBrightness(), [_ByBrightness(), _ByBrightness()])
    assert (found.of, found.images, found.disagreement) == ("synthetic", 8, 0)
    assert found.divergence == pytest.approx(0, abs=1e-6)


def test_a_student_that_calls_everything_bright_is_wrong_of_the_dark_ones(images):
    found = _validate(images, FixedLogits([0.0, 1.0, -50.0]), [_ByBrightness()])
    assert found.disagreement == 3 / 8
    p_dark, p_bright = 1 / (1 + math.e), math.e / (1 + math.e)
    assert found.divergence == pytest.approx(-(3 * math.log(p_dark) + 5 * math.log(p_bright)) / 8, rel=1e-4)


def test_images_are_normalised_and_the_student_is_asked_in_evaluation_mode(images):
    seen = []

    class Looks(FixedLogits):
        def forward(self, x):
            seen.append((self.training, x.min().item(), x.max().item()))
            return super().forward(x)

    _validate(images, Looks([0.0, 1.0, 0.0]).train(), [_ByBrightness()])
    assert {training for training, *_ in seen} == {False}
    assert (min(low for _, low, _ in seen), max(high for *_, high in seen)) == (-1, 1)  # mean and deviation are 1/2


def test_what_a_teacher_excludes_adds_nothing_to_the_divergence(images):
    def shares(votes):
        return torch.tensor([[1.0, 0.0, 0.0]]).log().expand(len(votes.y), 3)

    found = _validate(images, FixedLogits([0.0, 0.0, 0.0]), [_ByBrightness()], shares)
    assert found.divergence == pytest.approx(math.log(3))


def test_nothing_can_agree_with_a_teacher_whose_answers_are_no_numbers(images):
    with pytest.raises(OneshotError, match=r"^evaluate\.validation: the teacher's answers are not finite; gate=checks"):
        _validate(images, _ByBrightness(), [_ByBrightness(), FixedLogits([math.nan, 0.0, 0.0])])


def test_the_ensemble_is_not_told_what_an_image_was_made_for(images):
    seen = []

    class Needy:
        needs = frozenset({"labels"})

        def __call__(self, votes):
            seen.append(votes.y.tolist())
            return votes.P.mean(0)

    _validate(images[:2], _ByBrightness(), [_ByBrightness()], Needy())
    assert seen == [[0, 0], [1, 1], [2, 2]]


def test_an_ensemble_that_normalises_by_the_batch_never_gets_one_image_alone(images):
    sizes = []

    class ByTheBatch:
        by_the_batch = True

        def __call__(self, votes):
            sizes.append(len(votes.x))
            return votes.P.mean(0)

    _validate(images[:7], _ByBrightness(), [_ByBrightness()], ByTheBatch())
    assert set(sizes) == {3, 4}
