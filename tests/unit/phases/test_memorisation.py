import pytest
import torch

from oneshot_fl.phases import memorisation as module
from oneshot_fl.phases.memorisation import memorisation, nearest


def _grey(*values):
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()


def _noise(count):
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)


def test_distances_are_root_mean_squares_of_pixels():
    assert nearest(_grey(0, 255, 51), _grey(0, 255)).tolist() == pytest.approx([0, 0, 0.2])


def test_distances_are_the_same_in_however_small_pieces(monkeypatch):
    images, others = _noise(30), _noise(40)
    others[7] = images[3]
    whole = nearest(images, others)
    monkeypatch.setattr(module, "VALUES_AT_ONCE", 3 * 32 * 32 * 7)  # seven images
    pieces = []
    monkeypatch.setattr(torch, "cdist", lambda own, other, cdist=torch.cdist: pieces.append(own) or cdist(own, other))
    assert torch.equal(nearest(images, others), whole)
    assert {len(piece) for piece in pieces} == {7, 2}
    assert (whole == 0).nonzero().flatten().tolist() == [3]  # exactly


def test_copies_are_nearer_to_training_images_than_test_images_are():
    training, test = _grey(0, 100, 200), _grey(40, 140, 240)  # every test image is 40 away
    synthetic = _grey(0, 148, 90, 75, 50)  # 0, 48, 10, 25, 50 away; 40, 8, 50, 35, 10 of test
    found = memorisation(synthetic, training, test, matched=(training, test))
    assert found.images == 5
    assert found.nearer_to_training == 0.6
    assert found.copies == 0.6
    assert found.nearest_training == pytest.approx(25 / 255, abs=1e-6)
    assert found.nearest_test == pytest.approx(35 / 255, abs=1e-6)


def test_copies_are_of_any_training_image_and_what_is_nearer_of_the_matched_ones_alone():
    training, test = _grey(0, 100, 200, 250), _grey(40, 140)  # both are 40 away
    synthetic = _grey(200, 249, 150, 100)  # 0, 1, 50 and 0 away
    found = memorisation(synthetic, training, test, matched=(_grey(100), _grey(140)))
    assert found.copies == 0.75
    assert found.nearer_to_training == 0.25  # the last alone is nearer to 100 than to 140


def test_what_lies_as_near_to_both_is_memorised_by_half():
    images = _grey(10, 20)
    found = memorisation(_grey(10, 200), images, images, matched=(images, images))
    assert (found.nearer_to_training, found.copies) == (0.5, 0.5)  # 10 is a training image


def test_a_training_image_is_a_copy_also_where_test_images_are_some_too():
    training, test = _grey(0, 100, 200), _grey(0, 100, 240)  # two are training images, the third is 40 away
    synthetic = _grey(100, 190, 50, 255)  # 0, 10, 50 and 55 away
    assert memorisation(synthetic, training, test, matched=(training, test)).copies == 0.5
    many = _noise(60)
    assert memorisation(many[:30], many[:40], many[20:], matched=(many[:40], many[20:])).copies == 1.0
