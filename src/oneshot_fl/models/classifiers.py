"""Classifiers built from a `DataSpec`: images `[b, C, H, W]` -> logits `[b, c]`, for any side from 8 pixels up."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.dataset import DataSpec


def cnn2(spec: DataSpec, *, norm: bool) -> nn.Module:
    """Two 5x5 convolutions (16, 32) and one linear layer: the papers' two-layer CNN for 28x28 digits and clothes.

    With batch normalisation (`norm`) it is DENSE's CNNMnist: 29,034 parameters at 1x28x28 and 10 classes.
    """
    features = nn.Sequential(
        *_block(spec.channels, 16, kernel=5, padding=2, norm=norm, pool=True),
        *_block(16, 32, kernel=5, padding=2, norm=norm, pool=True),
        nn.Flatten(),
    )
    return _with_head(features, spec)


def cnn3(spec: DataSpec, *, norm: bool) -> nn.Module:
    """Three 3x3 convolutions (128 each) and one linear layer: the papers' three-layer CNN for 32x32 colour images.

    Without batch normalisation it is DENSE's and Co-Boosting's CNNCifar: 319,242 parameters at 3x32x32 and 10
    classes. Images below 18 pixels get padded convolutions, which would otherwise leave nothing to pool.
    """
    padding = 0 if spec.size >= 18 else 1
    features = nn.Sequential(
        *_block(spec.channels, 128, kernel=3, padding=padding, norm=norm, pool=True),
        *_block(128, 128, kernel=3, padding=padding, norm=norm, pool=True),
        *_block(128, 128, kernel=3, padding=padding, norm=norm, pool=False),
        nn.Flatten(),
    )
    return _with_head(features, spec)


class Resize(nn.Module):
    """Bilinear resize to `size` pixels a side; nothing to do where the images have that size already."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """Images `[b, C, H, W]` -> `[b, C, size, size]`."""
        if x.shape[-1] == self.size:
            return x
        return F.interpolate(x, size=(self.size, self.size), mode="bilinear", align_corners=False)


def lenet5(spec: DataSpec) -> nn.Module:
    """LeNet-5 with ReLU and max pooling (Co-Boosting's): 61,706 parameters at one channel and 10 classes.

    It is made for 32x32; other sizes are resized to that first, as Co-Boosting does with MNIST.
    """
    return nn.Sequential(
        Resize(32),
        *_block(spec.channels, 6, kernel=5, padding=0, norm=False, pool=True),
        *_block(6, 16, kernel=5, padding=0, norm=False, pool=True),
        *_block(16, 120, kernel=5, padding=0, norm=False, pool=False),
        nn.Flatten(),
        nn.Linear(120, 84),
        nn.ReLU(inplace=True),
        nn.Linear(84, spec.classes),
    )


def resnet18(spec: DataSpec) -> nn.Module:
    """torchvision's ResNet-18 with the CIFAR stem (3x3, stride 1, no max pooling): 11,173,962 parameters at RGB, 10."""
    from torchvision.models import resnet18 as build

    model = build(num_classes=spec.classes)
    model.conv1 = nn.Conv2d(spec.channels, 64, kernel_size=3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def _block(inputs: int, outputs: int, *, kernel: int, padding: int, norm: bool, pool: bool) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, kernel, padding=padding)]
    if norm:
        layers.append(nn.BatchNorm2d(outputs))
    layers.append(nn.ReLU(inplace=True))
    if pool:
        layers.append(nn.MaxPool2d(2))
    return layers


def _with_head(features: nn.Sequential, spec: DataSpec) -> nn.Module:
    with torch.no_grad():
        probe = features.eval()(torch.zeros(1, spec.channels, spec.size, spec.size))
    return nn.Sequential(*features.train(), nn.Linear(probe.shape[1], spec.classes))


def upload_bytes(model: nn.Module) -> int:
    """Bytes of the tensors a client sends: parameters and buffers."""
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
