"""Whether synthetic images are copies of training images.

Every synthetic image is compared with equally many training and test images. What knows nothing of single images lies
as near to the ones as to the others (the data-copying test of Meehan et al., 2020, as a share).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oneshot_fl.phases.class_figures import rounded

COPY_QUANTILE = 0.01
"""Of the distances of test images to their nearest training image: what is nearer than that is called a copy."""
AT_ONCE = 256
"""Images whose distances are held in memory together."""


@dataclass(frozen=True)
class Memorisation:
    """Distances are root mean squares over an image's pixels in [0, 1]."""

    images: int
    nearer_to_training: float
    """Share of the synthetic images nearer to a training than to any test image: 0.5 where nothing is memorised."""
    copies: float
    """Share that is a training image, or nearer to one than 99% of the test images that are none themselves."""
    nearest_training: float
    """Median over the synthetic images."""
    nearest_test: float


def memorisation(synthetic: Tensor, training: Tensor, test: Tensor) -> Memorisation:
    """Of synthetic images uint8 `[n, C, H, W]`, to equally many training and test images."""
    to_training, to_test = nearest(synthetic, training), nearest(synthetic, test)
    threshold = _threshold(nearest(test, training), pixels=synthetic[0].numel())
    closer = (to_training < to_test).double() + 0.5 * (to_training == to_test).double()
    return Memorisation(
        len(synthetic),
        rounded(float(closer.mean())),
        rounded(float((to_training < threshold).double().mean())),
        rounded(float(to_training.median())),
        rounded(float(to_test.median())),
    )


def _threshold(distances: Tensor, *, pixels: int) -> float:
    """What is nearer than that is a copy: of distances `[n]` of test images, some of which may be training images."""
    same = 0.5 / 255 / pixels**0.5  # half of what one grey value in one pixel makes; sums are not exact
    apart = distances[distances > same]
    return max(same, float(apart.quantile(COPY_QUANTILE))) if len(apart) else same


def nearest(images: Tensor, others: Tensor) -> Tensor:
    """The distance of every image uint8 `[n, C, H, W]` to the nearest of the others, `[n]`."""
    targets = _pixels(others)
    parts = [torch.cdist(_pixels(part), targets).min(dim=1).values for part in images.split(AT_ONCE)]
    return torch.cat(parts) / targets.shape[1] ** 0.5


def _pixels(images: Tensor) -> Tensor:
    """From 0 to 1, `[n, d]` in double precision."""
    return images.flatten(1).double() / 255
