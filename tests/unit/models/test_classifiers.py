"""Parameter counts are those of the reference codes (shared notes on DENSE and Co-Boosting)."""

import pytest
import torch
from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.classifiers import cnn2, cnn3, lenet5, resnet18, upload_bytes

GREY28 = DataSpec(1, 28, 10, (0.5,), (0.5,))
GREY32 = DataSpec(1, 32, 10, (0.5,), (0.5,))
RGB32 = DataSpec(3, 32, 10, (0.5,) * 3, (0.5,) * 3)


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (cnn2(GREY28, norm=True), 29_034),
        (cnn3(RGB32, norm=False), 319_242),
        (lenet5(GREY32), 61_706),
        (resnet18(RGB32), 11_173_962),
    ],
)
def test_parameter_counts(model, expected):
    assert _parameters(model) == expected


def test_batch_norm_is_the_only_difference_to_the_plain_networks():
    assert _parameters(cnn2(GREY28, norm=True)) - _parameters(cnn2(GREY28, norm=False)) == 2 * (16 + 32)
    assert _parameters(cnn3(RGB32, norm=True)) - _parameters(cnn3(RGB32, norm=False)) == 2 * 3 * 128


def test_building_leaves_batch_norm_untouched_and_the_model_in_training_mode():
    model = cnn3(RGB32, norm=True)
    assert model.training
    norm = next(module for module in model if isinstance(module, nn.BatchNorm2d))
    assert norm.num_batches_tracked == 0
    assert norm.running_mean.abs().sum() == 0


def test_upload_bytes_counts_parameters_and_buffers():
    # 3 weights + 1 bias, and a BN layer's 2 affine + 2 running numbers as float32, one int64 counter
    model = nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1))
    assert upload_bytes(model) == 4 * (3 + 1 + 2 + 2) + 8


def test_lenet_sees_a_resized_image():
    x = torch.rand(2, 1, 28, 28)
    model = lenet5(GREY28)
    resized = torch.nn.functional.interpolate(x, size=(32, 32), mode="bilinear", align_corners=False)
    torch.testing.assert_close(model(x), model(resized))
