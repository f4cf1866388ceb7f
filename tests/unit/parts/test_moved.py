"""What the student sees of images that move."""

import pytest
import torch

from oneshot_fl.parts.moved import Moved
from oneshot_fl.seeds import torch_generator
from tests.parts import server_of


def _never_asked(x):
    raise AssertionError("the answers are kept")


def test_every_image_is_moved_by_itself_and_mirrored_or_not():
    move = Moved(server_of(), share=0.25, mirrored="always", colour_only=False)
    image = torch.zeros(1, 1, 8, 8)
    image[..., 3, 2] = 1
    seen = move(image.expand(200, 1, 8, 8), _never_asked, move.draw(200, torch_generator(0)))
    rows, columns = seen[:, 0].amax(dim=2).argmax(dim=1), seen[:, 0].amax(dim=1).argmax(dim=1)
    assert set(rows.tolist()) == {1, 2, 3, 4, 5}  # two of eight pixels either way
    assert set(columns.tolist()) == {0, 1, 2, 3, 4, 5, 6, 7}  # 2 and, mirrored, 5: two either way


@pytest.mark.parametrize("mirrored", ["in_colour", "never"])
def test_a_digit_is_moved_and_not_mirrored(mirrored):
    move = Moved(server_of(), share=0.25, mirrored=mirrored, colour_only=False)
    rising = torch.arange(8.0).expand(200, 1, 8, 8)
    seen = move(rising, _never_asked, move.draw(200, torch_generator(0)))
    assert bool((seen[..., 2:6].diff(dim=3) > 0).all())  # beside edges of two pixels, where it is reflected


@pytest.mark.parametrize("colour_only", [True, False])
def test_grey_images_may_stay_as_they_are(colour_only):
    x = torch.rand(4, 1, 8, 8)
    move = Moved(server_of(), share=0.25, mirrored="always", colour_only=colour_only)
    seen = move(x, _never_asked, move.draw(4, torch_generator(0)))
    assert torch.equal(seen, x) == colour_only


def test_an_image_is_never_moved_by_its_whole_side():
    assert Moved(server_of(), share=0.99, mirrored="never", colour_only=False).most == 7


def test_images_too_small_to_be_moved_are_mirrored_all_the_same():
    move, x = Moved(server_of(), share=0.0625, mirrored="always", colour_only=False), torch.rand(1, 1, 8, 8)
    seen = move(x.expand(20, 1, 8, 8), _never_asked, move.draw(20, torch_generator(0)))
    mirrored = [torch.equal(each, x[0].flip(2)) for each in seen]
    assert 0 < sum(mirrored) < 20
    assert all(same or torch.equal(each, x[0]) for same, each in zip(mirrored, seen, strict=True))
