"""Conditional VAEs: the encoder stays with the client, the decoder is the upload that draws images of a class.

Images are pixels `[b, C, H, W]` in [0, 1], not normalised; labels int64 `[b]`, made one-hot inside. The layers are
those of FedMHO's code (Sec. 5.1.3: CVAE-small, CVAE-large) and of FEDCVAE's, with PyTorch's initialisation.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import Resize
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.values import Width, Widths


class Encoder(nn.Module):
    """The Gaussian that an image of a class has in latent space.

    Args:
        features: images `[b, C, H, W]` -> `[b, f]`.
        head: `[b, f + classes]` -> `[b, 2 * latent]`: means, then log variances.
        classes: length of the one-hot label behind the features; 0: the encoder does not see the label.
    """

    def __init__(self, features: nn.Module, head: nn.Module, *, classes: int) -> None:
        super().__init__()
        self.features, self.head, self.classes = features, head, classes

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance, `[b, latent]` each."""
        inputs = self.features(x)
        if self.classes:
            inputs = _beside_label(inputs, y, self.classes)
        mu, logvar = self.head(inputs).chunk(2, dim=1)
        return mu, logvar


class Decoder(nn.Module):
    """Latent vectors and labels to images; all that a client uploads.

    Args:
        layers: `[n, latent + classes]` -> logits of pixels `[n, C, side, side]`.
        classes: length of the one-hot label behind the latent vector.
        size: of the images to make; they are resized where the layers' own side is another.
    """

    def __init__(self, layers: nn.Module, *, classes: int, size: int) -> None:
        super().__init__()
        self.layers, self.classes = layers, classes
        self.resize = Resize(size)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """`z` `[n, latent]`, `y` `[n]` -> images `[n, C, H, W]` in [0, 1]."""
        return self.resize(torch.sigmoid(self.logits(z, y)))

    def logits(self, z: Tensor, y: Tensor) -> Tensor:
        """The pixels before the sigmoid, at the layers' own side: what the loss is taken of."""
        return self.layers(_beside_label(z, y, self.classes))


class CVAE(nn.Module):
    """A conditional variational autoencoder (Sohn et al. 2015).

    Args:
        encoder, decoder: see there.
        latent: length of `z`.
        squared_error: reconstruct by the squared error of pixels; else by their binary cross-entropy.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, *, latent: int, squared_error: bool = False) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.latent, self.squared_error = latent, squared_error

    def forward(self, x: Tensor, y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the reconstruction at `z = mu + exp(logvar / 2) * noise`, `mu` and `logvar`."""
        mu, logvar = self.encoder(x, y)
        return self.decoder.logits(mu + torch.exp(logvar / 2) * noise, y), mu, logvar

    def loss(self, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """Reconstruction (sum over pixels) + KL (sum over the latent), mean over the batch.

        Args:
            x: pixels in [0, 1], `[b, C, H, W]`.
            y: labels `[b]`.
            noise: N(0, 1), `[b, latent]`.
        """
        logits, mu, logvar = (
            at_least_float32(output) for output in self(x, y, noise)
        )  # sums need more than bf16's 8 bits
        return self.distance(logits, x) + kl_to_standard_normal(mu, logvar)

    def distance(self, logits: Tensor, x: Tensor) -> Tensor:
        """Between images, `logits` of pixels and `x` in [0, 1]: the sum over pixels, the mean over the batch."""
        target = Resize(logits.shape[-1])(x.float())
        if self.squared_error:
            return F.mse_loss(torch.sigmoid(logits), target, reduction="sum") / len(x)
        return F.binary_cross_entropy_with_logits(logits, target, reduction="sum") / len(x)


def kl_to_standard_normal(mu: Tensor, logvar: Tensor) -> Tensor:
    """KL(N(mu, exp(logvar)) || N(0, 1)) `[b, latent]` -> scalar: sum over the latent, mean over the batch."""
    return (mu.square() + torch.expm1(logvar) - logvar).sum(1).mean() / 2


class Crop(nn.Module):
    """The upper left corner of images."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """`[b, C, H, W]` -> `[b, C, size, size]`; nothing to do where they have that size already."""
        return x[:, :, : self.size, : self.size]


def mlp(spec: DataSpec, *, latent: Width, hidden: Width) -> CVAE:
    """FedMHO's CVAE-small for MNIST and Fashion-MNIST: one hidden layer, the label beside the encoder's pixels."""
    pixels = spec.channels * spec.size**2
    head = nn.Sequential(*_dense(pixels + spec.classes, hidden), nn.Linear(hidden, 2 * latent))
    layers = nn.Sequential(
        *_dense(latent + spec.classes, hidden),
        nn.Linear(hidden, pixels),
        nn.Unflatten(1, (spec.channels, spec.size, spec.size)),
    )
    encoder = Encoder(nn.Flatten(), head, classes=spec.classes)
    return CVAE(encoder, _decoder(layers, spec), latent=latent)


def conv(spec: DataSpec, *, latent: Width, channels: Widths, hidden: Width, label_in_encoder: bool) -> CVAE:
    """FedMHO's CVAE-small of 4x4 convolutions at stride 2: two for EMNIST, three for SVHN and CIFAR-10.

    A side that the strides do not divide is rounded down in the encoder; in the decoder up, and its images are cropped.

    Args:
        spec: of the images.
        latent: length of `z`.
        channels: of the encoder's convolutions; the decoder's are the same backwards.
        hidden: units of the linear layer between convolutions and latent space, on both sides.
        label_in_encoder: whether the encoder sees the label, beside the hidden units (CIFAR-10: no).

    Raises:
        OneshotError: so many strides leave nothing of the image.
    """
    stride = 2 ** len(channels)
    if spec.size < stride:
        raise OneshotError(
            f"cvae.channels={list(channels)}: {len(channels)} convolutions at stride 2 leave nothing of images of "
            f"{spec.size} pixels a side; give fewer"
        )
    widths = [spec.channels, *channels]
    down = [layer for a, b in pairwise(widths) for layer in (nn.Conv2d(a, b, 4, stride=2, padding=1), nn.ReLU())]
    up = [layer for a, b in pairwise(widths[::-1]) for layer in (nn.ConvTranspose2d(a, b, 4, 2, 1), nn.ReLU())][:-1]
    label = spec.classes if label_in_encoder else 0
    encoder = _pooled_encoder(down, channels[-1] * (spec.size // stride) ** 2, hidden, label=label, latent=latent)
    maps = (channels[-1], _rounded_up(spec.size, stride))
    return CVAE(encoder, _decoder(_grown(maps, up, spec, latent, hidden), spec), latent=latent)


def large(spec: DataSpec, *, latent: Width) -> CVAE:
    """FedMHO's CVAE-large: 3x3 convolutions (64, 128, 256), max pooling down and bilinear upsampling back.

    A side that is no multiple of 4 is rounded down in the encoder; in the decoder up, and its images are cropped.
    """
    down = [
        *(nn.Conv2d(spec.channels, 64, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    ]
    up = [
        *(nn.ConvTranspose2d(256, 128, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear")),
        *(nn.ConvTranspose2d(128, 64, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear")),
        nn.ConvTranspose2d(64, spec.channels, 3, padding=1),
    ]
    encoder = _pooled_encoder(down, 256 * (spec.size // 4) ** 2, 256, label=spec.classes, latent=latent)
    maps = (256, _rounded_up(spec.size, 4))
    return CVAE(encoder, _decoder(_grown(maps, up, spec, latent, 256), spec), latent=latent)


def fedcvae(spec: DataSpec, *, latent: Width) -> CVAE:
    """FEDCVAE's (Heinbaugh et al. 2023): batch normalisation, an encoder that does not see the label.

    As in its code everything happens at 32x32: the encoder's images and the loss's target are resized to that, and the
    decoder's images back to the data set's side. Grey pixels are reconstructed by cross-entropy, colours by squared
    error. Images are drawn in evaluation mode: the decoder's running statistics are part of the upload.
    """
    widths = [spec.channels, 32, 32, 64, 64]
    down = [layer for a, b in pairwise(widths) for layer in (nn.Conv2d(a, b, 4, stride=2, padding=1), *_norm(b))]
    features = nn.Sequential(Resize(32), *down, nn.Flatten())
    head = nn.Sequential(nn.Linear(256, 500), nn.Linear(500, 2 * latent))
    up = [
        layer for a, b in pairwise([64, 64, 32, 32]) for layer in (nn.ConvTranspose2d(a, b, 4, 2, 1), *_norm(b, 1e-3))
    ]
    layers = nn.Sequential(
        *_dense(latent + spec.classes, 256),
        nn.Unflatten(1, (64, 2, 2)),
        *up,
        nn.ConvTranspose2d(32, spec.channels, 4, 2, 1),
    )
    encoder = Encoder(features, head, classes=0)
    return CVAE(encoder, _decoder(layers, spec), latent=latent, squared_error=spec.channels > 1)


def _beside_label(inputs: Tensor, y: Tensor, classes: int) -> Tensor:
    """`[b, f]` and labels `[b]` -> `[b, f + classes]`."""
    return torch.cat([inputs, F.one_hot(y, classes).to(inputs.dtype)], dim=1)


def _dense(inputs: int, outputs: int) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(inputs, outputs), nn.ReLU()


def _norm(channels: int, eps: float = 1e-5) -> tuple[nn.Module, nn.Module]:
    return nn.BatchNorm2d(channels, eps=eps), nn.ReLU()


def _rounded_up(size: int, stride: int) -> int:
    return -(-size // stride)


def _decoder(layers: nn.Module, spec: DataSpec) -> Decoder:
    return Decoder(layers, classes=spec.classes, size=spec.size)


def _pooled_encoder(down: Sequence[nn.Module], flat: int, hidden: int, *, label: int, latent: int) -> Encoder:
    """Convolutions to `flat` numbers, a hidden layer, and the label (of that length) beside its units."""
    features = nn.Sequential(*down, nn.Flatten(), *_dense(flat, hidden))
    return Encoder(features, nn.Linear(hidden + label, 2 * latent), classes=label)


def _grown(maps: tuple[int, int], up: Sequence[nn.Module], spec: DataSpec, latent: int, hidden: int) -> nn.Sequential:
    """A decoder's layers: two linear ones to `maps` (channels, side), `up`, and what is more than an image cut off."""
    channels, side = maps
    return nn.Sequential(
        *_dense(latent + spec.classes, hidden),
        *_dense(hidden, channels * side**2),
        nn.Unflatten(1, (channels, side, side)),
        *up,
        Crop(spec.size),
    )
