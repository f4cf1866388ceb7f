"""Whether synthetic images are copies of training images.

For copies, every synthetic image is compared with all training images that it may be one of. Whether it lies nearer to
training than to test images is asked of equally many of both: what knows nothing of single images lies as near to the
ones as to the others (the data-copying test of Meehan et al., 2020, as a share).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oneshot_fl.phases.class_figures import rounded

COPY_QUANTILE = 0.01
"""Of the distances of test images to their nearest training image: what is nearer than that is called a copy."""
AT_ONCE = 2048
"""Images of either side whose distances are held in memory together, at most."""
VALUES_AT_ONCE = 2**23
"""Of the pixels of these images, in double precision; fewer images where they are large."""


@dataclass(frozen=True)
class Memorisation:
    """Distances are root mean squares over an image's pixels in [0, 1]."""

    images: int
    nearer_to_training: float
    """Share of the synthetic images nearer to a training than to any test image, of equally many of both: 0.5 where
    nothing is memorised."""
    copies: float
    """Share that is a training image, or nearer to one than 99% of the test images that are none themselves."""
    nearest_training: float
    """Median over the synthetic images; of the training images that `nearer_to_training` is asked of."""
    nearest_test: float


def memorisation(synthetic: Tensor, training: Tensor, test: Tensor, *, matched: tuple[Tensor, Tensor]) -> Memorisation:
    """Of synthetic images; all images are uint8 `[n, C, H, W]`.

    Args:
        synthetic: at least one.
        training: all that they may be copies of.
        test: those whose distances to all of `training` say what is called a copy; they need not be as many.
        matched: equally many training and test images with the same labels.
    """
    to_training, to_test = (nearest(synthetic, one) for one in matched)
    closer = (to_training < to_test).double() + 0.5 * (to_training == to_test).double()
    copied = _copied(nearest(synthetic, training), nearest(test, training))
    return Memorisation(
        len(synthetic),
        rounded(float(closer.mean())),
        rounded(float(copied.double().mean())),
        rounded(float(to_training.quantile(0.5))),
        rounded(float(to_test.quantile(0.5))),
    )


def _copied(distances: Tensor, of_test: Tensor) -> Tensor:
    """Which distances `[n]` are a copy's; test images at a distance of 0 are training images and tell nothing."""
    apart = of_test[of_test > 0]
    return (distances == 0) | (distances < (apart.quantile(COPY_QUANTILE) if len(apart) else 0))


def nearest(images: Tensor, others: Tensor) -> Tensor:
    """The distance of every image uint8 `[n, C, H, W]` to the nearest of the others, `[n]`; 0 only of equal ones."""
    values = others[0].numel()
    size = max(1, min(AT_ONCE, VALUES_AT_ONCE // values))
    parts = [_nearest(part, others.split(size)) for part in images.split(size)]
    return torch.cat(parts) / (255 * values**0.5)


def _nearest(images: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
    """In grey values, over the images of all parts; computed where those are, if doubles are known there."""
    device = parts[0].device if parts[0].is_cuda else torch.device("cpu")
    own = _greys(images, device)
    return torch.stack([torch.cdist(own, _greys(part, device)).min(dim=1).values for part in parts]).amin(dim=0).cpu()


def _greys(images: Tensor, device: torch.device) -> Tensor:
    """`[n, d]`: sums over whole numbers in double precision are exact, in whatever pieces and order."""
    return images.flatten(1).to(device).double()
