import pytest
import torch
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.parts import procedural
from oneshot_fl.parts.procedural import ProceduralSource, dead_leaves, mixtures, strokes, textures, variations
from oneshot_fl.parts.slots import Turn
from oneshot_fl.seeds import torch_generator
from tests.parts import SMALL, server_of

COLOUR = DataSpec(3, 17, 10, (0.5,) * 3, (0.5,) * 3)


@pytest.mark.parametrize("draw", [dead_leaves, strokes, textures])
@pytest.mark.parametrize("spec", [SMALL, COLOUR], ids=["grey", "colour"])
def test_drawings_are_pixels_of_the_right_shape_and_all_different(draw, spec):
    images = draw(50, spec, torch_generator(0))
    assert images.shape == (50, spec.channels, spec.size, spec.size)
    assert images.min() >= 0
    assert images.max() <= 1
    assert len({image.numpy().tobytes() for image in images}) == 50


@pytest.mark.parametrize("draw", [dead_leaves, strokes, textures])
def test_mixed_precision_draws_the_same(draw):
    with torch.autocast("cpu", torch.bfloat16):
        mixed = draw(20, COLOUR, torch_generator(0))
    assert_close(mixed, draw(20, COLOUR, torch_generator(0)), rtol=0, atol=0)


def test_leaves_have_few_colours_and_strokes_have_soft_edges():
    leaves, lines = (draw(20, SMALL, torch_generator(1)).flatten(1) for draw in (dead_leaves, strokes))
    assert max(len(image.unique()) for image in leaves) <= 13  # a ground and twelve leaves
    assert min(len(image.unique()) for image in lines) > 13


def test_half_of_the_dead_leaves_lie_on_black_ground():
    corners = dead_leaves(400, SMALL, torch_generator(2))[:, 0, 0, 0]
    assert 0.35 < (corners == 0).float().mean() < 0.6  # few leaves reach a corner


def test_textures_are_stronger_in_low_frequencies_and_their_channels_go_together():
    images = textures(100, DataSpec(3, 32, 10, (0.5,) * 3, (0.5,) * 3), torch_generator(3))
    power = torch.fft.rfft2(images - images.mean(dim=(2, 3), keepdim=True)).abs().square().mean(dim=(0, 1))
    assert power[1, 1] > 10 * power[4, 4] > 10 * power[16, 16]
    channels = images.movedim(1, 0).flatten(1)
    assert torch.corrcoef(channels)[0, 1] > 0.5


def test_mixtures_lie_between_two_images():
    images = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    mixed = mixtures(200, images, torch_generator(0))
    assert mixed.shape == (200, 1, 2, 2)
    assert_close(mixed, mixed[:, :, :1, :1].expand_as(mixed))
    inside = ((mixed > 0) & (mixed < 1)).float().mean()
    assert 0.35 < inside < 0.65  # half of the pairs are an image with itself


def test_variations_are_moved_by_an_eighth_at_most_and_half_of_them_mirrored():
    image = torch.zeros(1, 2, 16, 16)
    image[0, 0, 5, 3], image[0, 1, 8, 8] = 1, 1
    varied = variations(300, image, torch_generator(4))
    assert varied.shape == (300, 2, 16, 16)
    rows, columns = (varied[:, 0].amax(dim=side).argmax(dim=1) for side in (2, 1))
    assert set(rows.tolist()) == set(range(3, 8))
    plain = set(columns.tolist()) & set(range(8))
    assert plain == set(range(1, 6))
    assert set(columns.tolist()) - plain == set(range(10, 15))  # 15 - 3 and two to either side
    assert 0.4 < (columns < 8).float().mean() < 0.6
    both = varied[:, 1].flatten(1).argmax(dim=1) // 16 - rows
    assert set(both.tolist()) == {3}  # channels move together


@pytest.mark.parametrize("made", [(), (torch.empty(0, 1, 8, 8),)])
def test_mixtures_of_nothing_are_a_plain_line(made):
    source = ProceduralSource(server_of(), draw="mixtures", samples=4)
    turn = Turn(score=None, minimise=None, teacher=None, rng=torch_generator(0), made=made)
    with pytest.raises(OneshotError, match=r"^method\.source: mixtures are drawn of images that other sources"):
        source.make(turn)


def test_a_source_for_colour_makes_nothing_of_grey_and_draws_nothing():
    rng = torch_generator(0)
    before = rng.get_state()
    for draw in ("textures", "variations"):
        made = ProceduralSource(server_of(), draw=draw, samples=5, colour_only=True).make(
            Turn(None, None, None, rng, ())
        )
        assert made.x.shape == (0, 1, 8, 8)
    assert torch.equal(rng.get_state(), before)  # grey results are what they are without the source


def test_a_source_draws_unlabelled_images_as_models_see_them():
    before = (torch.full((2, 1, 8, 8), 7.0), torch.full((1, 1, 8, 8), 7.0))
    turn = Turn(None, None, None, torch_generator(0), before)
    leaves, mixed = (
        ProceduralSource(server_of(), draw=draw, samples=5).make(turn) for draw in ("dead_leaves", "mixtures")
    )
    assert leaves.y is mixed.y is None
    assert leaves.x.shape == (5, 1, 8, 8)
    assert -1 <= leaves.x.min() < 0 < leaves.x.max() <= 1
    assert_close(mixed.x, torch.full((5, 1, 8, 8), 7.0))


def test_a_curve_goes_from_its_start_by_its_middle_to_its_end(monkeypatch):
    start, middle, end = torch.tensor([[0.0, 0.0]]), torch.tensor([[4.0, 8.0]]), torch.tensor([[8.0, 0.0]])
    halfway = procedural._bezier(start, middle, end, 0.5)
    assert_close(halfway, torch.tensor([[4.0, 4.0]]))  # 1/4 of the start, 1/2 of the middle, 1/4 of the end
    pieces, real = [], procedural._bezier

    def noted(start, middle, end, share):
        pieces.append((start, end, share))
        return real(start, middle, end, share)

    monkeypatch.setattr(procedural, "_bezier", noted)
    strokes(2, SMALL, torch_generator(0))
    shares = [share for *_, share in pieces[: procedural.POINTS]]
    assert (shares[0], shares[-1]) == (0, 1)
    for before, after in zip(
        pieces[:: procedural.POINTS], pieces[procedural.POINTS :: procedural.POINTS], strict=False
    ):
        assert torch.equal(after[0], before[1])  # the next curve goes on where the last one ended


def test_a_pixel_is_where_its_middle_is():
    rows, columns = procedural._grid(2)
    assert (rows.tolist(), columns.tolist()) == ([[0.5], [1.5]], [[0.5, 1.5]])


def test_a_textures_deviation_lies_within_its_contrast():
    drawn = procedural._noise(200, DataSpec(1, 32, 10, (0.5,), (0.5,)), torch_generator(0))
    deviations, (low, high) = drawn.flatten(1).std(dim=1), procedural.CONTRAST
    assert deviations.max() < 1.05 * high
    assert (deviations > 0.8 * low).all()  # cutting to [0, 1] takes a little


def test_of_the_curves_as_many_are_drawn_as_were_drawn_by_lot(monkeypatch):
    """Single points, far apart: the ink shows how many there are."""
    monkeypatch.setattr(procedural, "POINTS", 2)
    numbers, points, real = [], [], procedural._bezier
    monkeypatch.setattr(procedural, "_bezier", lambda *given: points.append(real(*given)) or points[-1])
    randint = torch.randint
    monkeypatch.setattr(
        torch, "randint", lambda *given, **named: numbers.append(randint(*given, **named)) or numbers[-1]
    )
    drawn = strokes(50, DataSpec(1, 64, 10, (0.5,), (0.5,)), torch_generator(0))
    (curves,) = numbers
    ends = torch.stack(points[1::2])  # [CURVES, n, 2], columns and rows
    for number, end in enumerate(ends):
        alone = (torch.cat([ends[:number], ends[number + 1 :], points[0][None]]) - end).norm(dim=2).amin(dim=0) > 12
        column, row = end.long().clamp(0, 63).T
        inked = drawn[torch.arange(50), 0, row, column] > 0.05
        assert torch.equal(inked[alone], (number < curves.flatten())[alone])
