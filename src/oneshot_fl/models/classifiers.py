"""Classifiers built from a `DataSpec`: images `[b, C, H, W]` -> logits `[b, c]`, for any side from 8 pixels up."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.image_conv import ImageConv2d


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


def cnn1(spec: DataSpec) -> nn.Module:
    """The CNN of McMahan et al. (2017): 1,663,370 parameters at 1x28x28 and 10 classes (Co-Boosting's CNN1)."""
    features = nn.Sequential(
        *_block(spec.channels, 32, kernel=5, padding=2, norm=False, pool=True),
        *_block(32, 64, kernel=5, padding=2, norm=False, pool=True),
        nn.Flatten(),
    )
    return nn.Sequential(*_with_head(features, spec, outputs=512), nn.ReLU(inplace=True), nn.Linear(512, spec.classes))


def cnn2_torch(spec: DataSpec) -> nn.Module:
    """The CNN of PyTorch's CIFAR-10 tutorial: 62,006 parameters at RGB and 10 classes (Co-Boosting's CNN2)."""
    return nn.Sequential(
        Resize(32),
        *_block(spec.channels, 6, kernel=5, padding=0, norm=False, pool=True),
        *_block(6, 16, kernel=5, padding=0, norm=False, pool=True),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(inplace=True),
        nn.Linear(120, 84),
        nn.ReLU(inplace=True),
        nn.Linear(84, spec.classes),
    )


def vgg9(spec: DataSpec) -> nn.Module:
    """FedMHO's VGG-9 (seven weight layers, no batch normalisation): 69,166,346 parameters at grey and 10 classes."""
    return nn.Sequential(
        *_block(spec.channels, 64, kernel=3, padding=1, norm=False, pool=True),
        *_block(64, 128, kernel=3, padding=1, norm=False, pool=True),
        *_block(128, 256, kernel=3, padding=1, norm=False, pool=False),
        *_block(256, 256, kernel=3, padding=1, norm=False, pool=True),
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(256 * 49, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, spec.classes),
    )


def fedmho_cnn(spec: DataSpec) -> nn.Module:
    """FedMHO's small "CNN" (Table 1): 8,490 parameters on MNIST, 298,927 on EMNIST, 117,930 on SVHN.

    Colour images get SVHN's layers, grey ones of more than 10 classes EMNIST's, other grey ones MNIST's. Its code has a
    softmax behind MNIST's, which the cross-entropy then takes a second time; ours gives logits. Images below 16 pixels
    get padded 5x5 convolutions, which would otherwise leave nothing to pool.
    """
    if spec.channels == 1 and spec.classes <= 10:
        padding = 0 if spec.size >= 16 else 2
        layers = [
            *_block(1, 10, kernel=5, padding=padding, norm=False, pool=True),
            *_block(10, 20, kernel=5, padding=padding, norm=False, pool=True),
        ]
    else:
        widths = [spec.channels, 16, 32, 64, 128, *([128] if spec.channels == 1 else [])]
        layers = [
            layer
            for depth, (inputs, outputs) in enumerate(pairwise(widths))
            for layer in _block(inputs, outputs, kernel=3, padding=1, norm=False, pool=depth < 3)
        ]
    return _with_head(nn.Sequential(*layers, nn.Flatten()), spec)


def fedcvae_cnn(spec: DataSpec) -> nn.Module:
    """FEDCVAE's classifier, linear between its convolutions: 876,938 parameters at grey and 10 classes.

    It is made for 32x32; other sizes are resized to that first, as FEDCVAE does with MNIST.
    """
    return nn.Sequential(
        Resize(32),
        ImageConv2d(spec.channels, 32, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1600, 512),
        nn.ReLU(inplace=True),
        nn.Linear(512, spec.classes),
    )


def _block(inputs: int, outputs: int, *, kernel: int, padding: int, norm: bool, pool: bool) -> list[nn.Module]:
    """A convolution and what follows it; pooled before the ReLU, which is the same function with less to do."""
    convolution = ImageConv2d if inputs <= 3 else nn.Conv2d  # 3: the channels of a colour image
    layers: list[nn.Module] = [convolution(inputs, outputs, kernel, padding=padding)]
    if norm:
        layers.append(nn.BatchNorm2d(outputs))
    if pool:
        layers.append(nn.MaxPool2d(2))
    return [*layers, nn.ReLU(inplace=True)]


def _with_head(features: nn.Sequential, spec: DataSpec, *, outputs: int | None = None) -> nn.Sequential:
    """Behind `features` a linear layer to `outputs` units, by default one per class."""
    with torch.no_grad():
        probe = features.eval()(torch.zeros(1, spec.channels, spec.size, spec.size))
    return nn.Sequential(*features.train(), nn.Linear(probe.shape[1], outputs or spec.classes))


def upload_bytes(model: nn.Module) -> int:
    """Bytes of the tensors a client sends: parameters and buffers."""
    return sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
