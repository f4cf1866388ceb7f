import pytest
import torch

from oneshot_fl.phases.memorisation import memorisation, nearest


def _grey(*values):
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()


def test_distances_are_root_mean_squares_of_pixels():
    assert nearest(_grey(0, 255, 51), _grey(0, 255)).tolist() == pytest.approx([0, 0, 0.2])


def test_copies_are_nearer_to_training_images_than_test_images_are():
    training, test = _grey(0, 100, 200), _grey(40, 140, 240)  # every test image is 40 away
    found = memorisation(_grey(0, 148, 90, 75, 50), training, test)  # 0, 48, 10, 25, 50 away; 40, 8, 50, 35, 10 of test
    assert found.images == 5
    assert found.nearer_to_training == 0.6
    assert found.copies == 0.6
    assert found.nearest_training == pytest.approx(25 / 255, abs=1e-6)
    assert found.nearest_test == pytest.approx(35 / 255, abs=1e-6)


def test_what_lies_as_near_to_both_is_memorised_by_half():
    images = _grey(10, 20)
    found = memorisation(_grey(10, 200), images, images)
    assert (found.nearer_to_training, found.copies) == (0.5, 0.5)  # 10 is a training image


def test_a_training_image_is_a_copy_also_where_test_images_are_some_too():
    training, test = _grey(0, 100, 200), _grey(0, 100, 240)  # two are training images, the third is 40 away
    assert memorisation(_grey(100, 190, 50, 255), training, test).copies == 0.5  # 0, 10, 50 and 55 away
    many = torch.randint(256, (60, 3, 32, 32), dtype=torch.uint8)
    assert memorisation(many[:30], many[:40], many[20:]).copies == 1.0  # where distances are not exact
