from typing import get_args

import pytest
import torch
from torch.nn import functional as F

from oneshot_fl.config.rules import parameters_of
from oneshot_fl.data.augment import AUGMENTATIONS, augment, random_crop, random_flip, random_shift
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.seeds import torch_generator

SIZE = 9


@pytest.fixture
def images():
    """2,000 equal images whose pixels all differ, none of them black."""
    pixels = torch.arange(1, 2 * SIZE * SIZE + 1, dtype=torch.uint8).view(1, 2, SIZE, SIZE)
    return pixels.repeat(2000, 1, 1, 1)


def _offset(image: torch.Tensor) -> tuple[int, int]:
    """Where a crop lies in the padded image: its middle pixel (4, 4) is pixel (top, left) of the image."""
    top, left = divmod(int(image[0, SIZE // 2, SIZE // 2]) - 1, SIZE)
    return top, left


def test_each_crop_is_a_window_of_the_image_with_four_black_pixels_around_it(images):
    crops = random_crop(images, torch_generator(0))
    padded = F.pad(images[0], (4, 4, 4, 4))
    offsets = [_offset(crop) for crop in crops]
    for crop, (top, left) in zip(crops, offsets, strict=True):
        assert torch.equal(crop, padded[:, top : top + SIZE, left : left + SIZE])
    assert set(offsets) == {(top, left) for top in range(9) for left in range(9)}


def test_each_sample_is_shifted_and_mirrored_where_it_is_moved_away_from(images):
    shifted = random_shift(images.float(), 1, torch_generator(0))
    padded = F.pad(images[0].float(), (1, 1, 1, 1), mode="reflect")
    windows = [padded[:, top : top + SIZE, left : left + SIZE] for top in range(3) for left in range(3)]
    found = [next(n for n, window in enumerate(windows) if torch.equal(image, window)) for image in shifted]
    assert set(found) == set(range(9))


def test_each_sample_is_mirrored_or_not(images):
    flipped = random_flip(images, torch_generator(0))
    mirrored = torch.tensor([torch.equal(image, images[0].flip(2)) for image in flipped])
    assert all(torch.equal(image, images[0]) for image in flipped[~mirrored])
    assert mirrored.float().mean() == pytest.approx(0.5, abs=0.05)  # 4.5 standard deviations


@pytest.mark.parametrize(("name", "alone"), [("flip", random_flip), ("crop", random_crop)])
def test_each_does_what_it_is_called(name, alone, images):
    assert torch.equal(augment(images, name, torch_generator(0)), alone(images, torch_generator(0)))


def test_crop_flip_does_both_and_none_neither(images):
    both = augment(images, "crop_flip", torch_generator(0))
    rng = torch_generator(0)
    assert torch.equal(both, random_flip(random_crop(images, rng), rng))
    assert torch.equal(augment(images, "none", rng), images)


def test_none_draws_nothing(images):
    rng = torch_generator(0)
    before = rng.get_state()
    augment(images, "none", rng)
    assert torch.equal(rng.get_state(), before)


def test_the_configuration_names_exactly_these():
    assert set(get_args(parameters_of(Training)["augmentation"].hint)) == set(AUGMENTATIONS)
