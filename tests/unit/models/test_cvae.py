"""Parameter counts are those of the reference codes (shared notes on FedMHO and FEDCVAE)."""

import math

import pytest
import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.cvae import CVAE, Crop, conv, fedcvae, kl_to_standard_normal, large, mlp

MNIST = DataSpec(1, 28, 10, (0.5,), (0.5,))
EMNIST = DataSpec(1, 28, 47, (0.5,), (0.5,))
SVHN = DataSpec(3, 32, 10, (0.5,) * 3, (0.5,) * 3)


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("factory", "spec", "settings", "encoder", "decoder"),
    [
        # (784 + 10) * 256 + 256, 256 * 4 + 4; (2 + 10) * 256 + 256, 256 * 784 + 784
        (mlp, MNIST, {"latent": 2, "hidden": 256}, 204_548, 204_816),
        (conv, EMNIST, {"channels": [8, 16], "label_in_encoder": True}, 215_320, 221_081),
        (conv, SVHN, {"channels": [8, 16, 32], "label_in_encoder": True}, 152_688, 150_171),
        (conv, SVHN, {"channels": [64, 128, 256], "label_in_encoder": False}, 1_717_992, 1_719_235),
        (large, MNIST, {"latent": 20}, 3_591_864, 3_601_153),  # 3.59M, 3.60M
        (large, SVHN, {"latent": 20}, 4_576_056, 4_589_187),  # 4.58M, 4.59M
        (fedcvae, MNIST, {"latent": 10}, 254_296, 120_961),  # 254k, 121k
    ],
)
def test_parameter_counts(factory, spec, settings, encoder, decoder):
    if factory is conv:
        settings = {"latent": 20, "hidden": 256, **settings}
    with torch.device("meta"):
        model = factory(spec, **settings)
    assert (_parameters(model.encoder), _parameters(model.decoder)) == (encoder, decoder)


def test_kl_to_the_standard_normal():
    # KL(N(1, 1)) = 1/2, KL(N(0, 4)) = (4 - 1 - ln 4) / 2; the second sample is standard normal itself
    mu, logvar = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, math.log(4)], [0.0, 0.0]])
    assert kl_to_standard_normal(mu, logvar).item() == pytest.approx((0.5 + (3 - math.log(4)) / 2) / 2)


class _Fixed(nn.Module):
    """Encodes everything as N(2, 9) and decodes to one pixel whose logit is `z - shift`, drawn as 4."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full((len(x), 1), 2.0), torch.full((len(x), 1), math.log(9))

    def logits(self, z: Tensor, y: Tensor) -> Tensor:
        return (z - self.shift).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)


KL = (4 + 9 - 1 - math.log(9)) / 2


@pytest.mark.parametrize(
    ("squared_error", "distance"),
    [
        # z = 2 + 3 * noise: 5 and -1; the logits 5 - 5 = 0 and -1 - 5 = -6, of 4 pixels, which are 1 and 0
        (False, 4 * (math.log(2) + math.log1p(math.exp(-6))) / 2),
        (True, 4 * (0.5**2 + (1 / (1 + math.exp(6))) ** 2) / 2),
    ],
)
def test_the_loss_sums_over_pixels_and_is_a_mean_over_the_batch(squared_error, distance):
    part = _Fixed(5.0)
    model = CVAE(part, part, latent=1, squared_error=squared_error)
    x = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    loss = model.loss(x, torch.tensor([0, 1]), torch.tensor([[1.0], [-1.0]]))
    assert loss.item() == pytest.approx(distance + KL, rel=1e-6)


def test_a_reconstruction_that_is_certain_and_wrong_costs_its_logit():
    part = _Fixed(-998.0)  # logit 1000, where a sigmoid in float is 1 and the logarithm of the rest is infinite
    loss = CVAE(part, part, latent=1).loss(torch.zeros(1, 1, 2, 2), torch.tensor([0]), torch.zeros(1, 1))
    assert loss.item() == pytest.approx(4 * 1000 + KL)


@pytest.mark.parametrize(
    ("model", "sees"),
    [
        (mlp(MNIST, latent=2, hidden=64), True),  # of 8 units all may be off for an image
        (conv(MNIST, latent=2, channels=[4], hidden=64, label_in_encoder=True), True),
        (conv(MNIST, latent=2, channels=[4], hidden=8, label_in_encoder=False), False),
        (fedcvae(MNIST, latent=2), False),
    ],
)
def test_which_encoder_sees_the_label(model, sees):
    x = torch.rand(1, 1, 28, 28).expand(2, -1, -1, -1)
    with torch.no_grad():
        mu, logvar = model.eval().encoder(x, torch.tensor([3, 7]))
    for rows in (mu, logvar):
        assert torch.allclose(rows[0], rows[1], atol=1e-6) is not sees


def test_the_upload_holds_no_encoder():
    model = mlp(MNIST, latent=2, hidden=8)
    upload = model.decoder.state_dict()
    assert sum(tensor.numel() for tensor in upload.values()) == 12 * 8 + 8 + 8 * 784 + 784
    ours = {tensor.data_ptr() for tensor in upload.values()}
    assert not ours & {tensor.data_ptr() for tensor in model.encoder.state_dict().values()}


def test_images_are_the_sigmoid_of_the_logits():
    decoder = conv(MNIST, latent=2, channels=[4, 4], hidden=8, label_in_encoder=True).decoder
    z, y = torch.randn(2, 2), torch.tensor([0, 9])
    torch.testing.assert_close(decoder(z, y), torch.sigmoid(decoder.logits(z, y)))


@pytest.mark.parametrize("size", [8, 9, 28, 31, 64])
def test_a_side_that_the_strides_do_not_divide_is_cropped(size):
    model = conv(DataSpec(1, size, 3, (0.5,), (0.5,)), latent=2, channels=[2, 2, 2], hidden=4, label_in_encoder=True)
    logits, _, _ = model(torch.rand(2, 1, size, size), torch.tensor([0, 2]), torch.zeros(2, 2))
    assert logits.shape == (2, 1, size, size)


def test_a_crop_keeps_the_upper_left_corner():
    assert Crop(2)(torch.arange(9.0).view(1, 1, 3, 3)).flatten().tolist() == [0, 1, 3, 4]


def test_fedcvae_works_at_32_pixels_and_draws_at_the_data_sets():
    model = fedcvae(MNIST, latent=3)
    logits, _, _ = model(torch.rand(2, 1, 28, 28), torch.tensor([0, 1]), torch.zeros(2, 3))
    assert logits.shape == (2, 1, 32, 32)
    assert model.decoder(torch.zeros(2, 3), torch.tensor([0, 1])).shape == (2, 1, 28, 28)
    assert not model.squared_error
    assert fedcvae(SVHN, latent=3).squared_error


def test_strides_that_leave_nothing_of_an_image_are_refused():
    with pytest.raises(OneshotError, match=r"cvae.channels=\[2, 2, 2, 2\].* 8 pixels"):
        conv(DataSpec(1, 8, 3, (0.5,), (0.5,)), latent=2, channels=[2] * 4, hidden=4, label_in_encoder=True)
