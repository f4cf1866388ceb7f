from dataclasses import replace

import pytest
import torch
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.cvae import CVAE, fedcvae
from oneshot_fl.parts import view
from oneshot_fl.parts.decoders import (
    DecoderSource,
    draw,
    draw_noise,
    enough_by_label,
    shares_by_label,
    shares_by_squares,
    shares_drawn,
)
from oneshot_fl.parts.slots import Turn
from oneshot_fl.parts.uploads import DecoderUpload
from oneshot_fl.seeds import torch_generator
from tests.parts import SMALL, server_of

COUNTS = torch.tensor([[3, 1, 0], [1, 1, 0]])  # two decoders, three classes; 4 and 2 samples


def test_shares_in_proportion_to_the_counts():
    # 60 images over 6 samples: ten each
    assert shares_by_label(COUNTS, 60).tolist() == [[30, 10, 0], [10, 10, 0]]


def test_shares_by_squares_give_every_class_the_same_budget():
    # 60 / 3 = 20 a class; class 0 by 9 : 1, class 1 by 1 : 1, class 2 is nobody's
    assert shares_by_squares(COUNTS, 60, torch.ones(2, 3, dtype=torch.bool)).tolist() == [[18, 10, 10], [2, 10, 10]]


def test_an_image_hangs_on_no_other_and_drawing_leaves_running_statistics_as_they_are():
    decoder, noise = fedcvae(SMALL, latent=2).decoder.train(), torch.randn(4, 2, generator=torch_generator(0))
    before = {name: buffer.clone() for name, buffer in decoder.named_buffers()}
    together = draw(decoder, torch.arange(4) % 3, noise, size=SMALL.size)[2]
    alone = draw(decoder.train(), torch.zeros(1, dtype=torch.long), noise[:1], size=SMALL.size)[2]
    torch.testing.assert_close(alone, together[:1])
    assert before
    assert all(torch.equal(buffer, before[name]) for name, buffer in decoder.named_buffers())


def test_the_least_number_of_images_of_which_somebody_draws_one():
    counts = torch.tensor([[3, 2], [0, 2]])  # 7 samples: 3/7 of 3 images is one, of 2 images none
    assert enough_by_label(counts) == 3
    assert [bool(shares_by_label(counts, samples).any()) for samples in (2, 3)] == [False, True]


def test_a_class_that_nobody_has_is_drawn_by_those_alone_that_can_be_asked_for_it():
    able = torch.tensor([[True, True, False], [True, True, True]])
    assert shares_by_squares(COUNTS, 60, able).tolist() == [[18, 10, 0], [2, 10, 20]]
    assert shares_by_squares(COUNTS, 60, able & able[0]).tolist() == [[18, 10, 0], [2, 10, 0]]


def test_drawn_shares_have_the_clients_sizes_and_only_their_labels():
    drawn = shares_drawn(COUNTS, 61, torch_generator(0))
    assert drawn.sum(dim=1).tolist() == [40, 21]  # floor(4/6 * 61), and the rest
    assert drawn[:, 2].tolist() == [0, 0]
    assert abs(drawn[0, 0].item() - 30) < 12


def test_a_decoder_whose_share_rounds_to_nothing_draws_nothing():
    counts = torch.tensor([[1, 0, 0], [20, 20, 20]])
    assert shares_drawn(counts, 10, torch_generator(0)).sum(dim=1).tolist() == [0, 10]


def test_noise_is_cut_off_at_its_bound_and_normal_without():
    free, cut = draw_noise(4000, 2, None, torch_generator(0)), draw_noise(4000, 2, 1.0, torch_generator(0))
    assert free.abs().max() > 2
    assert cut.abs().max() <= 1
    # the variance of N(0, 1) between -1 and 1 is 1 - 2 phi(1) / (2 Phi(1) - 1) = 0.2911
    assert cut.var() == pytest.approx(0.2911, abs=0.02)


class _Paints(nn.Module):
    """Every pixel is `base` plus a tenth of the label."""

    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = nn.Parameter(torch.tensor(base))

    def forward(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert z.shape == (len(y), 4)
        return (self.base + y / 10).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)


class _Listens(_Paints):
    """It keeps the noise that it is asked to draw from."""

    def forward(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.noise = z
        return super().forward(z, y)


@pytest.mark.parametrize("bound", [None, 1.0])
def test_a_decoder_draws_from_noise_within_the_bound(bound):
    decoder = DecoderUpload(_Listens(0.0), 4, COUNTS[0], "key", build=_no_vae)
    source = DecoderSource(server_of(decoders=[decoder]), samples=1000, split="label_distribution", bound=bound)
    source.make(Turn(None, None, None, torch_generator(0)))
    assert bool(decoder.model.noise.abs().max() <= 1) is (bound is not None)


class _Asked(_Paints):
    """It keeps how many images it is asked for at once."""

    def forward(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.at_once = [*getattr(self, "at_once", []), len(y)]
        return super().forward(z, y)


def test_what_a_decoder_needs_does_not_grow_with_its_share(monkeypatch):
    monkeypatch.setattr(view, "PIXELS_AT_ONCE", 4 * 8**2)
    decoder = DecoderUpload(_Asked(0.0), 4, COUNTS[0], "key", build=_no_vae)
    source = DecoderSource(server_of(decoders=[decoder]), samples=10, split="label_distribution", bound=None)
    made = source.make(Turn(None, None, None, torch_generator(0)))
    assert len(made.x) == 9  # 7 of class 0 and 2 of class 1, of 10 at 3 : 1
    assert decoder.model.at_once == [4, 4, 1]


def _no_vae() -> CVAE:
    raise AssertionError("these decoders are only drawn from")


def test_every_decoder_draws_its_share_and_images_are_normalised(spec):
    pairs = zip((0.0, 0.5), COUNTS, strict=True)
    decoders = [DecoderUpload(_Paints(base), 4, counts, str(base), build=_no_vae) for base, counts in pairs]
    source = DecoderSource(server_of(decoders=decoders), samples=6, split="label_distribution", bound=None)
    x, y, _ = source.make(Turn(None, None, None, torch_generator(0)))
    assert y.tolist() == [0, 0, 0, 1, 0, 1]
    pixels = spec.to_pixels(x)[:, 0, 0, 0]
    torch.testing.assert_close(pixels, torch.tensor([0.0, 0.0, 0.0, 0.1, 0.5, 0.6]))
    assert not x.requires_grad


def test_a_decoder_that_draws_no_pixels_after_all_is_named():
    decoder = DecoderUpload(_Paints(1.0), 4, COUNTS[0], "key", build=_no_vae, name="north")
    source = DecoderSource(server_of(decoders=[decoder]), samples=6, split="label_distribution", bound=None)
    with pytest.raises(OneshotError, match=r"^north: draws pixels from 1 to 1\.1, .*, or leave it out$"):
        source.make(Turn(None, None, None, torch_generator(0)))


@pytest.mark.parametrize(
    ("split", "samples", "enough"),
    [("label_distribution", 1, 2), ("squared_counts", 2, 6)],  # 2 // (6 / 3); a class's budget of 2 by 9 : 1
)
def test_too_few_images_for_any_decoders_share_name_the_key_and_what_is_enough(split, samples, enough):
    decoders = [DecoderUpload(_Paints(0.0), 4, counts, "key", build=_no_vae) for counts in COUNTS]

    def made(samples: int):
        source = DecoderSource(server_of(decoders=decoders), samples=samples, split=split, bound=None)
        return source.make(Turn(None, None, None, torch_generator(0)))

    for few in (samples, enough - 1):
        with pytest.raises(OneshotError, match=rf"^method\.source\.samples={few}: .*set at least {enough},"):
            made(few)
    assert len(made(enough).y) >= 1


def test_no_decoder_draws_a_class_that_its_client_does_not_know():
    decoders = [DecoderUpload(_Paints(0.0), 4, counts, "key", build=_no_vae) for counts in COUNTS]
    decoders[0] = replace(decoders[0], unknown=(2,))
    source = DecoderSource(server_of(decoders=decoders), samples=60, split="squared_counts", bound=None)
    drawn = [labels.bincount(minlength=3).tolist() for _, labels, _ in source.draws(torch_generator(0))]
    assert drawn == [[18, 10, 0], [2, 10, 20]]
