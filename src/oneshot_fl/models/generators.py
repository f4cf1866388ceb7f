"""Image generators: noise `[b, nz]` -> images `[b, C, H, W]` in the space that models see."""

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.image_conv import ConvToImage2d
from oneshot_fl.values import BatchSize, Width


class Generator(Protocol):
    """What a source asks of a generator."""

    def __call__(self, z: Tensor) -> Tensor:
        """Noise `[b, nz]` -> images `[b, C, H, W]`."""

    def sample_noise(self, count: int, rng: torch.Generator) -> Tensor:
        """Noise `[count, nz]` on the generator's device."""

    def reset(self, rng: torch.Generator) -> None:
        """New random weights."""


class UpsampledConv2d(nn.Conv2d):
    """Nearest upsampling x2 and a 3x3 convolution (padding 1, no bias) as one step, without the larger images.

    Every output pixel of the two sees 2x2 input pixels only, because neighbours are copies: together they are one
    transposed convolution of stride 2 whose 4x4 kernel adds up the nine weights over those copies. That takes 16
    multiplications instead of 36 for every four output pixels.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[b, inputs, H, W]` -> `[b, outputs, 2 H, 2 W]`."""
        flipped = self.weight.flip(2, 3).transpose(0, 1)
        rows = F.pad(flipped, (0, 0, 0, 1)) + F.pad(flipped, (0, 0, 1, 0))
        kernel = F.pad(rows, (0, 1)) + F.pad(rows, (1, 0))
        return F.conv_transpose2d(x, kernel, stride=2, padding=1)


class ConvGenerator(nn.Module):
    """The generator of DENSE's and Co-Boosting's codes (2,328,899 parameters at 3x32x32 and width 64).

    FC -> BN -> two (nearest upsampling x2, 3x3 convolution, BN, LeakyReLU 0.2) -> 3x3 convolution -> sigmoid, then the
    data set's normalisation. Batch normalisation always uses the batch: the generator is only ever trained.
    Sides that are no multiple of 4 are made one step larger and cropped.

    Args:
        spec: of the images to make.
        noise: length nz of the noise vector.
        width: channels of the last hidden convolution; the first ones have twice as many.
        compiled: let torch compile the layers, which asks for a C++ compiler. On a CPU that takes 5 to 8 s before the
            first step; at 28x28 grey, steps against five cnn2 are then 1.08 to 1.12 times faster, against one 1.12 to
            1.13 times; at 3x32x32 with cnn3, 1.02 and 1.07 to 1.09 times.
    """

    def __init__(self, spec: DataSpec, *, noise: Width, width: Width, compiled: bool = False) -> None:
        super().__init__()
        self.spec, self.noise = spec, noise
        self.base = math.ceil(spec.size / 4)
        wide = 2 * width
        self.project = nn.Linear(noise, wide * self.base**2)
        self.decode = nn.Sequential(
            _norm(wide),
            UpsampledConv2d(wide, wide),
            _norm(wide),
            nn.LeakyReLU(0.2, inplace=True),
            UpsampledConv2d(wide, width),
            _norm(width),
            nn.LeakyReLU(0.2, inplace=True),
            ConvToImage2d(width, spec.channels, 3, padding=1),
            nn.Sigmoid(),
        )
        if compiled:
            # dynamic: torch would compile the second size of a process for any size, which fails (2.14.1)
            self.decode.compile(dynamic=False)

    def forward(self, z: Tensor) -> Tensor:
        """`z` `[b, nz]` -> images `[b, C, size, size]`, normalised."""
        maps = self.project(z).view(len(z), -1, self.base, self.base)
        pixels = self.decode(maps)[:, :, : self.spec.size, : self.spec.size]
        return self.spec.normalise(pixels)

    def sample_noise(self, count: int, rng: torch.Generator) -> Tensor:
        """Standard normal noise `[count, nz]`, drawn on the CPU and moved to the generator's device."""
        return torch.randn(count, self.noise, generator=rng).to(self.project.weight.device)

    @torch.no_grad()
    def reset(self, rng: torch.Generator) -> None:
        """The reference codes' initialisation: weights N(0, 0.02), BN weights N(1, 0.02), biases 0."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
                mean = 1.0 if isinstance(module, nn.BatchNorm2d) else 0.0
                fresh = torch.empty(module.weight.shape).normal_(mean, 0.02, generator=rng)
                module.weight.copy_(fresh)
                if module.bias is not None:
                    module.bias.zero_()


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, track_running_stats=False)


EDGE = 0.02
"""So far from black and white bounded pixels begin at least."""


class Pixels(nn.Module):
    """No generator at all: the images themselves are the parameters (DeepInversion, ADI).

    Args:
        spec: of the images.
        count: b, the number of images.
        bounded: keep them between black and white: the parameters pass a sigmoid, then the data set's normalisation.
    """

    def __init__(self, spec: DataSpec, *, count: BatchSize, bounded: bool = False) -> None:
        super().__init__()
        self.spec, self.bounded = spec, bounded
        self.images = nn.Parameter(torch.zeros(count, spec.channels, spec.size, spec.size))

    def forward(self, z: Tensor) -> Tensor:
        """The images `[count, C, H, W]` in the space that models see; the noise is not used."""
        return self.spec.normalise(self.images.sigmoid()) if self.bounded else self.images + 0

    def sample_noise(self, count: int, rng: torch.Generator) -> Tensor:
        """Nothing is drawn: the randomness is in the images' start."""
        return torch.empty(count, 0, device=self.images.device)

    @torch.no_grad()
    def reset(self, rng: torch.Generator) -> None:
        """Standard normal pixels, or parameters of them."""
        self.images.copy_(torch.empty(self.images.shape).normal_(generator=rng))

    @torch.no_grad()
    def show(self, pixels: Tensor) -> None:
        """Begin as these images, `[count, C, H, W]` in [0, 1].

        Bounded ones begin short of black and white: the slope of a sigmoid is 0 there, and no step would leave them.
        """
        pixels = pixels.to(self.images.device)
        self.images.copy_(pixels.clamp(EDGE, 1 - EDGE).logit() if self.bounded else self.spec.normalise(pixels))
