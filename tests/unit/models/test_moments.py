import pytest
import torch

from oneshot_fl.models import moments
from oneshot_fl.models.moments import batch_moments


def test_moments_of_four_numbers_a_channel():
    """Channel 0 holds 1, 2, 3, 6: mean 3, variance (4 + 1 + 0 + 9) / 4. Channel 1 holds 5 only."""
    x = torch.tensor([[[1.0, 2.0], [5.0, 5.0]], [[3.0, 6.0], [5.0, 5.0]]])
    mean, var = batch_moments(x)
    assert mean.tolist() == [3.0, 5.0]
    assert var.tolist() == [3.5, 0.0]


def test_gradients_by_hand():
    """d mean / d x = 1/4 and d var / d x = 2 (x - 3) / 4."""
    x = torch.tensor([[1.0], [2.0], [3.0], [6.0]], requires_grad=True)
    mean, var = batch_moments(x)
    (8 * mean + 2 * var).sum().backward()
    assert x.grad.flatten().tolist() == [2 - 2.0, 2 - 1.0, 2.0, 2 + 3.0]


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4, 5)])
def test_gradients_by_finite_differences(shape):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(batch_moments, x)


def test_a_large_mean_does_not_drown_the_variance():
    x = torch.randn(64, 2, 8, 8) + 1000
    torch.testing.assert_close(batch_moments(x)[1], x.double().var((0, 2, 3), correction=0).float(), rtol=1e-5, atol=0)


def test_half_precision_is_summed_in_single_precision():
    x = torch.randn(64, 2, 8, 8).bfloat16()
    mean, var = batch_moments(x)
    assert (mean.dtype, var.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(var, x.float().var((0, 2, 3), correction=0), rtol=1e-5, atol=1e-6)


def test_gradients_in_half_precision_are_rounded_once():
    """bf16 keeps eight digits of two: at most 2^-8 of a number is lost, once."""
    x = torch.randn(64, 2, 8, 8).bfloat16().requires_grad_()
    wide = x.detach().double().requires_grad_()
    of_mean, of_var = torch.tensor([3.0, -50.0]), torch.tensor([700.0, 20.0])
    for given in (x, wide):
        mean, var = batch_moments(given)
        ((of_mean * mean).sum() + (of_var * var).sum()).backward()
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=2**-8, atol=1e-6)


def test_stacked_batches_have_the_moments_of_each():
    stacked = torch.randn(3, 6, 2, 4, 4, requires_grad=True)
    mean, var = torch.func.vmap(batch_moments)(stacked)
    torch.testing.assert_close(mean, stacked.mean((1, 3, 4)))
    torch.testing.assert_close(var, stacked.var((1, 3, 4), correction=0))
    weights = torch.randn(3, 2)
    (gradient,) = torch.autograd.grad((mean * weights).sum() + (var * weights).sum(), stacked)
    expected = stacked.mean((1, 3, 4)), stacked.var((1, 3, 4), correction=0)
    (wanted,) = torch.autograd.grad(sum((value * weights).sum() for value in expected), stacked)
    torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4, 5)])
def test_devices_without_a_kernel_of_both_have_the_same_moments_and_gradients(monkeypatch, shape, dtype):
    """As Apple's GPUs; no such device is needed, as the sums run on any."""
    x = (torch.randn(shape) + 100).to(dtype)
    own, other = (x.clone().requires_grad_() for _ in range(2))
    expected = batch_moments(own)
    monkeypatch.setattr(moments, "IN_ONE_PASS", ())
    found = batch_moments(other)
    torch.testing.assert_close(found, expected)
    for mean, var in (expected, found):
        (mean + 3 * var).sum().backward()
    torch.testing.assert_close(other.grad, own.grad)


def test_a_device_that_torch_has_no_such_kernel_for_is_asked_for_none():
    x = torch.empty(6, 3, 4, 4, dtype=torch.bfloat16, device="meta")
    assert [(each.shape, each.dtype) for each in batch_moments(x)] == [((3,), torch.float32)] * 2
