"""Whether what a source or a perturbation hands over is what the loop works on: a user's own may hand over anything."""

from typing import Any

import torch
from torch import Tensor

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.parts.slots import Made, Perturb, Teacher

BRIGHTEST = 20.0
"""Times as bright as white: noise and what is drawn are less, and bytes that were not normalised more."""


def received(made: Any, *, spec: DataSpec, key: str, finite: bool = False) -> Made:
    """What a source made, as it is, but for labels of fewer bits, which become int64, and images of other floats.

    Those become float32, as models are; nobody asks for the gradient of any.

    To look at the labels waits for the device, once for all images of a round.

    Args:
        made: what `make` returned.
        key: of the source in the configuration.
        finite: whether its images must be so, as where it is not trained, and no learning rate can be too high.

    Raises:
        OneshotError: it is no `Made`; images are no numbers `[n, C, H, W]` of the spec, labels no whole numbers `[n]`
            of its classes, or trust no numbers `[n]` from 0 to 1; or images that must be finite are not, or are not
            normalised.
    """
    if not isinstance(made, Made):
        raise OneshotError(f"{key}: make returns {_told(made)}, and must return Made(images, labels or None)")
    shape = (spec.channels, spec.size, spec.size)
    if not _is_float(made.x) or made.x.ndim != 4 or made.x.shape[1:] != shape:
        raise OneshotError(
            f"{key}: makes images of {_told(made.x)}, and these data's are floating-point numbers of shape "
            f"[n, {', '.join(map(str, shape))}]"
        )
    if finite and not _finite(made.x):
        raise OneshotError(f"{key}: makes images with pixels that are not finite (NaN or infinite)")
    if finite and len(made.x) and (brightest := spec.brightest(made.x)) > BRIGHTEST:
        raise OneshotError(
            f"{key}: makes pixels {brightest:.0f} times as bright as white; models see normalised ones: "
            "spec.normalise(pixels), of pixels in [0, 1]"
        )
    n = len(made.x)
    if made.trust is not None:
        _check_trust(made.trust, n, key)
    made = made._replace(x=_as_models_take(made.x.detach()))
    return made if made.y is None else made._replace(y=_labels(made.y, n, spec.classes, key))


def _check_trust(trust: Any, n: int, key: str) -> None:
    must = f"and must by a floating-point number from 0 to 1 an image, of shape [{n}], or by None"
    if not _is_float(trust) or trust.shape != (n,):
        raise OneshotError(f"{key}: trusts its labels by {_told(trust)}, {must}")
    if not bool(((trust >= 0) & (trust <= 1)).all()):
        raise OneshotError(f"{key}: trusts its labels by {float(trust.min()):.3g} to {float(trust.max()):.3g}, {must}")


def chance(drawn: Any) -> Tensor:
    """What a perturbation drew, as it is.

    Raises:
        OneshotError: it is no tensor.
    """
    if isinstance(drawn, Tensor):
        return drawn
    raise OneshotError(
        f"method.perturb: draw returns {_told(drawn)}, and must return a tensor, torch.empty(0) where chance decides "
        "nothing"
    )


def perturbed(perturb: Perturb, x: Tensor, teacher: Teacher, drawn: Tensor, *, finite: bool) -> Tensor:
    """What a perturbation makes of images `[b, C, H, W]`, as it is, but for such of other floats than float32.

    It may write into the images that it is given: `x` itself is left alone.

    Args:
        finite: whether pixels must stay finite, which waits for the device.

    Raises:
        OneshotError: it is no images of the same shape; or finite pixels are so no longer.
    """
    answer = perturb(x.clone(), teacher, drawn)
    if not _is_float(answer) or answer.shape != x.shape:
        raise OneshotError(
            f"method.perturb: returns {_told(answer)}, and must return as many images as it is given, {_told(x)} here"
        )
    if finite and not _finite(answer) and _finite(x):
        raise OneshotError("method.perturb: makes pixels that are not finite (NaN or infinite) of images that are")
    return _as_models_take(answer)


def _finite(images: Tensor) -> bool:
    return bool(torch.isfinite(images).all())


def _as_models_take(images: Tensor) -> Tensor:
    return images.float()


def _labels(y: Any, n: int, classes: int, key: str) -> Tensor:
    if not isinstance(y, Tensor) or y.shape != (n,) or y.is_floating_point() or y.is_complex():
        raise OneshotError(
            f"{key}: makes labels of {_told(y)}, and must make a whole number an image, of shape [{n}], or None"
        )
    y = y.long()
    if n and bool(((y < 0) | (y >= classes)).any()):
        raise OneshotError(
            f"{key}: makes labels from {int(y.min())} to {int(y.max())}, and these data's classes are 0 to "
            f"{classes - 1}"
        )
    return y


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _told(value: Any) -> str:
    """What something is, in a line: its type, and the shape and numbers of a tensor."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"shape {list(value.shape)} ({str(value.dtype).removeprefix('torch.')})"
