"""Classifiers from torchvision, fitted to small images: any number of channels, sides from 8 to 64 pixels."""

from typing import Any, Literal

import torch
from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.classifiers import Resize
from oneshot_fl.values import TorchvisionName


def resnet(spec: DataSpec, *, depth: Literal[18, 34, 50, 101, 152]) -> nn.Module:
    """ResNet with the CIFAR stem (3x3, stride 1, no max pooling): depth 18 has 11,173,962 parameters at RGB and 10."""
    from torchvision.models import get_model

    model = get_model(f"resnet{depth}", num_classes=spec.classes)
    model.conv1 = nn.Conv2d(spec.channels, 64, kernel_size=3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def vgg11(spec: DataSpec) -> nn.Module:
    """VGG-11 with batch normalisation and one linear layer, as Co-Boosting's code (9.23 million parameters)."""
    from torchvision.models import vgg11_bn

    features = vgg11_bn(num_classes=spec.classes).features
    _replace_stem(features, spec.channels)
    return nn.Sequential(
        Resize(max(spec.size, 32)), *features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, spec.classes)
    )


def from_torchvision(spec: DataSpec, *, architecture: TorchvisionName, **options: Any) -> nn.Module:
    """Any classifier of `torchvision.models` by name, with random weights.

    The first convolution takes the data set's channels at stride 1, a max pooling right behind it is taken out where
    the model names it `maxpool`, and images below 32 pixels are resized to 32, so that small images survive the
    strides that are made for 224 pixels. `options` go to torchvision's builder.
    """
    from torchvision.models import get_model

    model = get_model(architecture, weights=None, num_classes=spec.classes, **options)
    _replace_stem(model, spec.channels)
    if hasattr(model, "maxpool"):
        model.maxpool = nn.Identity()
    return nn.Sequential(Resize(32), model) if spec.size < 32 else model


def _replace_stem(model: nn.Module, channels: int) -> None:
    """Put a convolution with the given input channels and stride 1 where the first one is."""
    name, first = next((name, module) for name, module in model.named_modules() if isinstance(module, nn.Conv2d))
    stem = nn.Conv2d(
        channels,
        first.out_channels,
        kernel_size=first.kernel_size,  # type: ignore[arg-type]
        padding=first.padding,  # type: ignore[arg-type]
        bias=first.bias is not None,
    )
    with torch.no_grad():
        if stem.weight.shape == first.weight.shape:  # keep the builder's own initialisation
            stem.load_state_dict(first.state_dict())
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, stem)
