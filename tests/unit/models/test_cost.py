"""FedMHO's Table 2, from its models; models without contents, so that nothing is computed."""

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import fedmho_cnn, vgg9
from oneshot_fl.models.cost import Passes, multiply_accumulates, recorded
from oneshot_fl.models.cvae import conv, large, mlp

aten = torch.ops.aten


def _convolution(x: list[int], weight: list[int], *settings: Any, out_shape: list[int], **_: Any) -> int:
    """Twice the kernel's elements for every pixel that comes out, transposed or not."""
    return 2 * out_shape[0] * prod(out_shape[2:]) * prod(weight)


def _adaptive_pooling(x: list[int], size: list[int], *, out_shape: list[int], **_: Any) -> int:
    window = prod(before // after for before, after in zip(x[2:], out_shape[2:], strict=True))
    return 2 * (window + 1) * prod(out_shape)


def _bilinear(x: list[int], *settings: Any, out_shape: list[int], **_: Any) -> int:
    return 2 * 11 * prod(out_shape)


TABLE2: dict[Any, Callable[..., int]] = {
    aten.convolution: _convolution,
    aten._adaptive_avg_pool2d: _adaptive_pooling,
    aten.upsample_bilinear2d: _bilinear,
}


def table2_operations(model: nn.Module, *inputs: torch.Tensor) -> int:
    """What FedMHO prints in Table 2 ("FLOPs"), for its models.

    Its numbers come out if a transposed convolution costs as though every kernel element met a pixel for every *output*
    (four times too much at stride 2), adaptive pooling a sum and a division an output, and bilinear upsampling 11
    operations an output.
    """
    return multiply_accumulates(model, *inputs, rules=TABLE2)


MNIST = DataSpec(1, 28, 10, (0.5,), (0.5,))
EMNIST = DataSpec(1, 28, 47, (0.5,), (0.5,))
SVHN = DataSpec(3, 32, 10, (0.5,) * 3, (0.5,) * 3)


def _image(spec: DataSpec) -> torch.Tensor:
    return torch.empty(1, spec.channels, spec.size, spec.size)


@pytest.mark.parametrize(
    ("layer", "x", "expected"),
    [
        (nn.Linear(3, 5), torch.zeros(1, 3), 15),
        (nn.Conv2d(2, 4, 3, padding=1), torch.zeros(1, 2, 6, 6), 36 * 4 * 2 * 9),
        (nn.Conv2d(2, 4, 4, stride=2, padding=1), torch.zeros(1, 2, 6, 6), 9 * 4 * 2 * 16),
        (nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1), torch.zeros(1, 4, 3, 3), 9 * 4 * 2 * 16),
        (nn.ReLU(), torch.zeros(1, 3), 0),
    ],
)
def test_the_cost_of_a_layer(layer, x, expected):
    assert multiply_accumulates(layer, x) == expected
    assert multiply_accumulates(layer, x.repeat(2, *[1] * (x.ndim - 1))) == 2 * expected


def test_counting_leaves_the_model_as_it_is():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 3).eval())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert multiply_accumulates(model, torch.ones(1, 1, 3, 3)) == 2 * 9 + 2 * 3
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model] == [True, True, True, False]
    assert model(torch.ones(2, 1, 3, 3)).device.type == "cpu"


@pytest.mark.parametrize(
    ("factory", "spec", "computed", "beside", "printed"),
    [
        # adaptive pooling of 3 x 3 or 4 x 4 to 7 x 7: an operation an output, the division
        (vgg9, MNIST, 126_452_736, 256 * 49, 126.47e6),
        (vgg9, SVHN, 145_465_344, 256 * 49, 145.48e6),
        (fedmho_cnn, MNIST, 467_200, 0, 467.20e3),  # printed 467.23: their softmax costs 29 (10 + 9 + 10) more
        (fedmho_cnn, SVHN, 4_001_792, 0, 4.00e6),
        (fedmho_cnn, EMNIST, 3_964_032, 0, 3.96e6),
    ],
)
def test_classifiers_of_table_2(factory, spec, computed, beside, printed):
    with torch.device("meta"):
        model, x = factory(spec), _image(spec)
    assert multiply_accumulates(model, x) == computed
    assert table2_operations(model, x) == computed + beside == pytest.approx(printed, abs=5 if printed < 1e6 else 5e3)


@pytest.mark.parametrize(
    ("spec", "channels", "computed", "in_table_2"),
    [
        (MNIST, [], 408_064, 408_064),
        # transposed convolutions: 7 * 7 * 16 * 8 * 16 + 14 * 14 * 8 * 16 = 125,440, which Table 2 takes four times
        (EMNIST, [8, 16], 1_057_880 - 3 * 125_440, 1_057_880),
        # 4 * 4 * 32 * 16 * 16 + 8 * 8 * 16 * 8 * 16 + 16 * 16 * 8 * 3 * 16 = 360,448
        (SVHN, [8, 16, 32], 2_082_704 - 3 * 360_448, 2_082_704),
    ],
)
def test_cvae_small_of_table_2(spec, channels, computed, in_table_2):
    latent = 20 if channels else 2
    with torch.device("meta"):
        if channels:
            model = conv(spec, latent=latent, channels=channels, hidden=256, label_in_encoder=True)
        else:
            model = mlp(spec, latent=latent, hidden=256)
        inputs = (_image(spec), torch.zeros(1, dtype=torch.int64), torch.empty(1, latent))
    assert multiply_accumulates(model, *inputs) == computed
    assert table2_operations(model, *inputs) == in_table_2


@pytest.mark.parametrize(
    # bilinear upsampling to 128 x 14 x 14 and 64 x 28 x 28, or 128 x 16 x 16 and 64 x 32 x 32, at 11 operations
    ("spec", "computed", "upsampling", "printed"),
    [(MNIST, 151_843_016, 11 * 75_264, 152.67e6), (SVHN, 200_681_672, 11 * 98_304, 201.76e6)],
)
def test_cvae_large_of_table_2_has_a_latent_of_10_or_so(spec, computed, upsampling, printed):
    with torch.device("meta"):
        model = large(spec, latent=10)
        inputs = (_image(spec), torch.zeros(1, dtype=torch.int64), torch.empty(1, 10))
    assert multiply_accumulates(model, *inputs) == computed
    assert table2_operations(model, *inputs) == computed + upsampling == pytest.approx(printed, abs=5e3)


class _Twice(nn.Module):
    """Calls another watched model, as several that vote do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.inner(x)


def test_a_pass_counts_with_the_gradients_that_follow_it():
    trained, frozen, x = nn.Linear(3, 5), nn.Linear(3, 5).requires_grad_(False), torch.zeros(4, 3)
    for model, given, graph, times in (
        (trained, x, True, 3),
        (frozen, x.clone().requires_grad_(), True, 2),
        (frozen, x, True, 1),
        (trained, x, False, 1),
    ):
        passes = Passes()
        with passes.watched([model]), torch.set_grad_enabled(graph):
            model(given)
        model(given)
        assert passes.macs == 4 * 15 * times


def test_only_the_outermost_of_nested_calls_counts():
    model = _Twice(nn.Linear(3, 5).requires_grad_(False))
    passes = Passes(macs=7)
    with passes.watched([model, model.inner]):
        model(torch.zeros(2, 3))
        model.inner(torch.zeros(2, 3))
    assert passes.macs == 7 + 2 * 30 + 2 * 15


def test_counting_passes_draws_no_random_number_and_keeps_modes():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Dropout())
    torch.manual_seed(0)
    alone = model(torch.ones(4, 3))
    torch.manual_seed(0)
    with Passes().watched([model]):
        watched = model(torch.ones(4, 3))
    assert torch.equal(alone, watched)
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.rand(1), (torch.manual_seed(0), model(torch.ones(4, 3)), torch.rand(1))[2])


def test_a_bank_costs_what_its_clients_cost():
    clients = [nn.Sequential(nn.Flatten(), nn.Linear(64, 3)) for _ in range(2)]
    passes = Passes()
    for mode in ("loop", "stacked"):
        bank = ClientBank(clients, mode=mode)
        with passes.watched([bank]):
            bank(torch.zeros(5, 1, 8, 8), frozenset({"features"}))
    assert passes.macs == 2 * (5 * 2 * 64 * 3)


def test_what_is_recorded_counts_once_for_every_replay():
    model, passes = nn.Linear(3, 2), Passes(macs=5)
    with passes.watched([model]), recorded() as count:
        model(torch.zeros(4, 3))
    assert passes.macs == 5
    for _ in range(2):
        count()
    assert passes.macs == 5 + 2 * 4 * 3 * (3 * 2)  # a pass that weights are trained on counts for three


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_attention_counts_in_evaluation_mode_too(device):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, device=device)
    linear = 9 * 16 * (3 * 16 + 16 + 2 * 32)  # queries, keys, values and their mixture; up and down
    products = 2 * 9 * 9 * 16  # queries by keys, and what they weigh
    assert multiply_accumulates(layer, torch.zeros(1, 9, 16, device=device)) == linear + products
    assert torch.backends.mha.get_fastpath_enabled()
