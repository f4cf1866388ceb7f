import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.models.image_conv import ConvToImage2d, ImageConv2d

SHAPES = [(1, 16, 5, 2), (3, 4, 3, 0), (3, 2, 3, 1), (2, 3, 2, 0), (1, 2, 1, 0), (1, 2, 3, 4)]


def _frozen(*shape: int, dtype: torch.dtype = torch.float64) -> ImageConv2d:
    inputs, outputs, kernel, padding = shape
    return ImageConv2d(inputs, outputs, kernel, padding=padding).to(dtype).requires_grad_(False)


def test_a_pixel_is_sent_the_weight_it_was_multiplied_with():
    layer = _frozen(1, 1, 2, 0)
    layer.weight.data = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    layer.bias.data = torch.zeros(1)
    x = torch.tensor([[[[1.0, 10.0], [100.0, 1000.0]]]], requires_grad=True)
    y = layer(x)
    y.backward()
    assert y.item() == 1 + 20 + 300 + 4000
    assert x.grad.tolist() == [[[[1.0, 2.0], [3.0, 4.0]]]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_outputs_and_gradients_are_those_of_a_plain_convolution(shape, layout):
    layer = _frozen(*shape).to(memory_format=layout)
    x = torch.randn(4, shape[0], 6, 7, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    y, plain = layer(x), F.conv2d(x, layer.weight, layer.bias, padding=shape[3])
    assert torch.equal(y, plain)
    assert y.is_contiguous(memory_format=layout)
    weights = torch.randn_like(y)
    assert_close(torch.autograd.grad((y * weights).sum(), x), torch.autograd.grad((plain * weights).sum(), x))
    assert type(y.grad_fn) is not type(plain.grad_fn)  # it did go another way


@pytest.mark.parametrize("shape", [(16, 1, 3, 1), (8, 3, 3, 1), (4, 2, 5, 2), (2, 3, 2, 0), (3, 1, 3, 4)])
def test_images_and_all_gradients_are_those_of_a_plain_convolution(shape):
    inputs, outputs, kernel, padding = shape
    layer = ConvToImage2d(inputs, outputs, kernel, padding=padding).double()
    plain = nn.Conv2d(inputs, outputs, kernel, padding=padding).double()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(4, inputs, 6, 7, dtype=torch.float64, requires_grad=True)
    ours, theirs = layer(x), plain(x)
    assert_close(ours, theirs)
    assert type(ours.grad_fn) is not type(theirs.grad_fn)  # it did go another way
    weights = torch.randn_like(ours)
    gradients = [
        torch.autograd.grad((image * weights).sum(), [x, *model.parameters()])
        for image, model in ((ours, layer), (theirs, plain))
    ]
    assert_close(*gradients)


def test_the_last_layer_of_the_generator_makes_images_so():
    generator = ConvGenerator(DataSpec(3, 8, 10, (0.5,) * 3, (0.5,) * 3), noise=4, width=2)
    *others, last = (module for module in generator.modules() if isinstance(module, nn.Conv2d))
    assert type(last) is ConvToImage2d
    assert not any(isinstance(module, ConvToImage2d) for module in others)


def test_gradients_by_finite_differences_also_of_gradients():
    layer = _frozen(3, 2, 3, 1)
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, x)
    assert torch.autograd.gradgradcheck(layer, x)


@pytest.mark.parametrize("free", ["weight", "bias"])
def test_what_is_not_frozen_gets_its_gradient(free):
    layer = _frozen(1, 2, 3, 0)
    getattr(layer, free).requires_grad_()
    plain = nn.Conv2d(1, 2, 3).double()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 1, 5, 5, dtype=torch.float64, requires_grad=True)
    layer(x).square().sum().backward()
    plain(x).square().sum().backward()
    assert_close(getattr(layer, free).grad, getattr(plain, free).grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_mixed_precision_the_gradient_is_about_as_exact_as_a_plain_convolutions(dtype):
    """1.0 (1.25 to bf16 images) times as wrong; if the shifted parts were added in bf16 it would be 1.6 times."""
    layer = _frozen(3, 16, 5, 2, dtype=torch.float32)
    x = torch.randn(8, 3, 16, 16, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y, plain = layer(x), F.conv2d(x, layer.weight, layer.bias, padding=2)
    assert y.dtype == torch.bfloat16
    weights = torch.randn_like(y)
    wide = x.detach().float().requires_grad_()
    exact = torch.autograd.grad(layer(wide), wide, weights.float())[0]
    errors = [(torch.autograd.grad(way, x, weights)[0] - exact).norm() / exact.norm() for way in (y, plain)]
    assert errors[0] < 1.4 * errors[1] < 0.01


def test_stacked_layers_answer_as_each_does():
    layers = [_frozen(3, 4, 3, 1) for _ in range(3)]
    weight, bias = (torch.stack([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
    base = _frozen(3, 4, 3, 1)
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)

    def one(weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(base, {"weight": weight, "bias": bias}, (x,))

    stacked, apart = torch.func.vmap(one)(weight, bias), torch.stack([layer(x) for layer in layers])
    assert_close(stacked, apart)
    weights = torch.randn_like(apart)
    assert_close(torch.autograd.grad(stacked, x, weights), torch.autograd.grad(apart, x, weights))
