"""Parameter counts are those of the reference codes (shared notes on DENSE and Co-Boosting)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.classifiers import (
    cnn1,
    cnn2,
    cnn2_torch,
    cnn3,
    fedcvae_cnn,
    fedmho_cnn,
    lenet5,
    upload_bytes,
    vgg9,
)
from oneshot_fl.models.image_conv import ImageConv2d
from oneshot_fl.models.zoo import from_torchvision, resnet, vgg11

GREY28 = DataSpec(1, 28, 10, (0.5,), (0.5,))
GREY32 = DataSpec(1, 32, 10, (0.5,), (0.5,))
RGB32 = DataSpec(3, 32, 10, (0.5,) * 3, (0.5,) * 3)


def _parameters(build: Callable[..., nn.Module], spec: DataSpec, **settings: Any) -> int:
    with torch.device("meta"):  # which draws no weights
        return sum(parameter.numel() for parameter in build(spec, **settings).parameters())


@pytest.mark.parametrize(
    ("build", "spec", "expected"),
    [
        (partial(cnn2, norm=True), GREY28, 29_034),
        (partial(cnn3, norm=False), RGB32, 319_242),
        (lenet5, GREY32, 61_706),
        (cnn1, GREY28, 1_663_370),
        (cnn2_torch, RGB32, 62_006),
        (vgg9, GREY28, 69_166_346),
        (partial(resnet, depth=18), RGB32, 11_173_962),
        (fedmho_cnn, GREY28, 8_490),
        (fedmho_cnn, DataSpec(1, 28, 47, (0.5,), (0.5,)), 298_927),
        (fedmho_cnn, RGB32, 117_930),
        (fedcvae_cnn, GREY28, 876_938),
    ],
)
def test_parameter_counts(build, spec, expected):
    assert _parameters(build, spec) == expected


def test_batch_norm_is_the_only_difference_to_the_plain_networks():
    assert _parameters(cnn2, GREY28, norm=True) - _parameters(cnn2, GREY28, norm=False) == 2 * (16 + 32)
    assert _parameters(cnn3, RGB32, norm=True) - _parameters(cnn3, RGB32, norm=False) == 2 * 3 * 128


@pytest.mark.parametrize("build", [partial(cnn2, norm=True), partial(cnn3, norm=False), cnn1, lenet5, fedcvae_cnn])
@pytest.mark.parametrize("spec", [GREY28, RGB32])
def test_the_layer_that_sees_images_and_no_other_is_one_of_images(build, spec):
    first, *others = (module for module in build(spec).modules() if isinstance(module, nn.Conv2d))
    assert type(first) is ImageConv2d
    assert {type(module) for module in others} == {nn.Conv2d}


def test_building_leaves_batch_norm_untouched_and_the_model_in_training_mode():
    model = cnn3(RGB32, norm=True)
    assert model.training
    norm = next(module for module in model if isinstance(module, nn.BatchNorm2d))
    assert norm.num_batches_tracked == 0
    assert norm.running_mean.abs().sum() == 0


def test_fedmhos_cnn_gives_logits():
    # a softmax as in its code would make every row sum to 1
    assert (fedmho_cnn(GREY28)(torch.rand(2, 1, 28, 28)).sum(1) - 1).abs().min() > 0.01


def test_upload_bytes_counts_parameters_and_buffers():
    # 3 weights + 1 bias, and a BN layer's 2 affine + 2 running numbers as float32, one int64 counter
    model = nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1))
    assert upload_bytes(model) == 4 * (3 + 1 + 2 + 2) + 8


def test_lenet_sees_a_resized_image():
    x = torch.rand(2, 1, 28, 28)
    model = lenet5(GREY28)
    resized = torch.nn.functional.interpolate(x, size=(32, 32), mode="bilinear", align_corners=False)
    torch.testing.assert_close(model(x), model(resized))


@pytest.mark.parametrize(
    ("build", "millions"),
    [
        (vgg11, 9.23),
        (partial(from_torchvision, architecture="mobilenet_v3_small"), 1.53),
        (partial(from_torchvision, architecture="shufflenet_v2_x1_0"), 1.26),
    ],
)
def test_sizes_of_co_boostings_larger_networks(build, millions):
    assert _parameters(build, RGB32) / 1e6 == pytest.approx(millions, abs=0.01)


def test_any_torchvision_classifier_takes_small_grey_images():
    model = from_torchvision(DataSpec(1, 8, 3, (0.5,), (0.5,)), architecture="squeezenet1_1")
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 3)
    assert vgg9(DataSpec(1, 8, 3, (0.5,), (0.5,)))(torch.rand(2, 1, 8, 8)).shape == (2, 3)
