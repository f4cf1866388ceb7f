import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

from oneshot_fl.config.compose import build
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.generators import ConvGenerator, Pixels, UpsampledConv2d
from oneshot_fl.seeds import torch_generator
from tests.composing import compose_config


@pytest.mark.parametrize(("channels", "size", "expected"), [(3, 32, 2_328_899), (1, 32, 2_327_745), (1, 28, 1_834_305)])
def test_parameter_counts_of_the_reference_generator(channels, size, expected):
    spec = DataSpec(channels, size, 10, (0.5,) * channels, (0.5,) * channels)
    generator = ConvGenerator(spec, noise=256, width=64)
    assert sum(parameter.numel() for parameter in generator.parameters()) == expected


@pytest.mark.parametrize("size", [8, 10, 28, 30])
def test_images_have_the_asked_size_and_lie_in_the_normalised_range(size):
    spec = DataSpec(2, size, 3, (0.5, 0.5), (0.25, 0.5))
    images = ConvGenerator(spec, noise=8, width=4)(torch.randn(5, 8))
    assert images.shape == (5, 2, size, size)
    assert images[:, 0].abs().max() <= 2.0
    assert images[:, 1].abs().max() <= 1.0


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 5), (7, 7)])
def test_upsampled_convolution_is_the_upsampling_and_the_convolution(height, width):
    layer = UpsampledConv2d(3, 4).double()
    x = torch.randn(2, 3, height, width, dtype=torch.float64, requires_grad=True)
    literal = nn.functional.conv2d(nn.Upsample(scale_factor=2)(x), layer.weight, padding=1)
    torch.testing.assert_close(layer(x), literal)
    towards = torch.randn_like(literal)
    ours, theirs = (torch.autograd.grad(made, (x, layer.weight), towards) for made in (layer(x), literal))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.slow  # a compiler at work, 15 to 70 s
@pytest.mark.skipif(not shutil.which("c++"), reason="torch compiles with a C++ compiler")
def test_compiled_generators_make_the_same_images_and_learn_the_same(spec):
    """Of two sizes in one process, as in a sweep over data sets."""
    for each in (spec, replace(spec, size=12)):
        _check_compiled(each)


def _check_compiled(spec):
    plain, compiled = (ConvGenerator(spec, noise=4, width=2, compiled=choice) for choice in (False, True))
    compiled.load_state_dict(plain.state_dict())
    z, towards = torch.randn(6, 4), torch.randn(6, 1, spec.size, spec.size)
    images = [generator(z) for generator in (plain, compiled)]
    torch.testing.assert_close(*images)
    for made in images:
        (made * towards).sum().backward()
    for parameter, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)


def test_compiling_is_asked_for_at_a_key_that_reaches_the_methods_generator(spec, monkeypatch):
    asked = []

    def compiles(module, **settings):
        asked.append((module, settings))

    monkeypatch.setattr(nn.Module, "compile", compiles)
    for overrides in ((), ("+generator.compiled=true",)):
        generator = build(compose_config("method=dense", *overrides).method.source.generator, spec=spec)
    assert asked == [(generator.decode, {"dynamic": False})]


def test_reset_depends_on_the_generator_of_random_numbers_only(spec):
    generators = [ConvGenerator(spec, noise=8, width=4) for _ in range(2)]
    for generator in generators:
        generator.reset(torch_generator(5))
    states = [generator.state_dict() for generator in generators]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert states[0]["project.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert states[0]["decode.0.weight"].mean().item() == pytest.approx(1.0, abs=0.05)


def test_pixels_are_images_that_start_as_noise_and_can_be_stepped(spec):
    pixels = Pixels(spec, count=50)
    pixels.reset(torch_generator(3))
    images = pixels(pixels.sample_noise(50, torch_generator(0)))
    assert images.shape == (50, 1, 8, 8)
    assert images.std().item() == pytest.approx(1.0, abs=0.05)
    before = images.detach().clone()
    images.sum().backward()
    torch.optim.SGD(pixels.parameters(), lr=1.0).step()
    torch.testing.assert_close(pixels(torch.empty(50, 0)), before - 1)


def test_bounded_pixels_stay_between_black_and_white(spec):
    pixels = Pixels(spec, count=2, bounded=True)
    with torch.no_grad():
        pixels.images.copy_(torch.tensor([-100.0, 100.0]).view(2, 1, 1, 1).expand_as(pixels.images))
    assert pixels(pixels.sample_noise(2, torch.Generator())).flatten(1).mean(dim=1).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("bounded", [False, True])
def test_pixels_begin_as_images_that_they_are_given(spec, bounded):
    pixels, given = Pixels(spec, count=2, bounded=bounded), torch.rand(2, 1, 8, 8) * 0.9 + 0.05
    pixels.show(given)
    torch.testing.assert_close(pixels(torch.empty(2, 0)), spec.normalise(given))


def test_bounded_pixels_begin_where_a_step_still_moves_them(spec):
    pixels = Pixels(spec, count=2, bounded=True)
    pixels.show(torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 8, 8))
    shown = spec.to_pixels(pixels(torch.empty(2, 0)))
    torch.testing.assert_close(shown.flatten(1)[:, 0], torch.tensor([0.02, 0.98]))
