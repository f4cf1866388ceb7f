"""Hostile clients: the last ones of a run upload something else, or train on something else, than honest ones.

An attack on uploads maps `Uploads` to `Uploads`. One on training (`Poison`) changes a hostile client's samples before
it trains; whoever sees `poisons` hands it to those clients.
"""

from abc import abstractmethod
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.spread import evenly_spaced
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import last_linear, norm_layers
from oneshot_fl.models.structure import structure
from oneshot_fl.parts.uploads import ClassifierUpload, Uploads
from oneshot_fl.recipe import Recipe
from oneshot_fl.seeds import seeded
from oneshot_fl.values import CountOrZero, Finite, Positive, Seed, Share


class Tampering:
    """The models of the last `clients` classifiers are tampered with after training.

    Args:
        clients: how many are hostile.
        seed: of whatever is drawn.
    """

    poisons: ClassVar[bool] = False
    copies: ClassVar[bool] = False
    """Whether it needs a client that is honest."""

    def __init__(self, *, clients: CountOrZero, seed: Seed = 0) -> None:
        self.clients, self.seed = clients, seed

    def __call__(self, uploads: Uploads) -> Uploads:
        """The uploads with the hostile ones in place of the last; what was handed over stays as it is."""
        first = self._honest(uploads)
        hostile = [self._tampered(each, k, uploads) for k, each in enumerate(uploads.classifiers[first:], first)]
        return replace(uploads, classifiers=(*uploads.classifiers[:first], *hostile))

    def _honest(self, uploads: Uploads) -> int:
        """How many classifiers are; they come first."""
        return max(0, len(uploads.classifiers) - self.clients)

    def _tampered(self, upload: ClassifierUpload, k: int, uploads: Uploads) -> ClassifierUpload:
        model = deepcopy(upload.model)
        with torch.no_grad(), seeded(self.seed, "attack", k):
            self.tamper(model, uploads)
        return replace(upload, model=model)

    def check(self, classes: int) -> None:
        """Refuse, before anything is trained, what no model of so many classes can be made to do.

        Raises:
            OneshotError: there is such a thing.
        """

    @abstractmethod
    def tamper(self, model: nn.Module, uploads: Uploads) -> None:
        """Change a model in place; gradients are off, and the global random state is the attack's own."""


class Filled(Tampering):
    """Every weight is the same number, or none: `nan`, `inf`, `zero`."""

    VALUES: ClassVar[dict[str, float]] = {"nan": torch.nan, "inf": torch.inf, "zero": 0.0}

    def __init__(self, *, value: Literal["nan", "inf", "zero"], clients: CountOrZero, seed: Seed = 0) -> None:
        super().__init__(clients=clients, seed=seed)
        self.value = self.VALUES[value]

    def tamper(self, model: nn.Module, uploads: Uploads) -> None:
        """Fill all parameters."""
        for parameter in model.parameters():
            parameter.fill_(self.value)


class Scaled(Tampering):
    """Every weight times a factor; -1 flips all signs."""

    def __init__(self, *, factor: Finite, clients: CountOrZero, seed: Seed = 0) -> None:
        super().__init__(clients=clients, seed=seed)
        self.factor = factor

    def tamper(self, model: nn.Module, uploads: Uploads) -> None:
        """Scale all parameters; running statistics stay."""
        for parameter in model.parameters():
            parameter.mul_(self.factor)


class Noisy(Tampering):
    """Gaussian noise on every weight, `deviation` times the root mean square of its tensor."""

    def __init__(self, *, deviation: Positive, clients: CountOrZero, seed: Seed = 0) -> None:
        super().__init__(clients=clients, seed=seed)
        self.deviation = deviation

    def tamper(self, model: nn.Module, uploads: Uploads) -> None:
        """Add the noise."""
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.square().mean().sqrt() * self.deviation)


class NegativeVariance(Tampering):
    """Running variances below 0, of which nobody can take a root."""

    def tamper(self, model: nn.Module, uploads: Uploads) -> None:
        """Turn the signs of all running variances."""
        layers = norm_layers(model)
        if not layers:
            raise OneshotError(
                "attack=negative_variance: the hostile clients' models have no running variances; choose another "
                "attack, or a model with batch normalisation"
            )
        for layer in layers:
            layer.running_var.neg_()  # type: ignore[union-attr]  # such layers have one


class ConstantVoter(Tampering):
    """The same class for every image, as sure as `logit` says."""

    def __init__(
        self, *, spec: DataSpec, chosen: CountOrZero, logit: Positive, clients: CountOrZero, seed: Seed = 0
    ) -> None:
        super().__init__(clients=clients, seed=seed)
        self.spec, self.chosen, self.logit = spec, chosen, logit

    def check(self, classes: int) -> None:
        """There must be such a class."""
        _check_class("attack.chosen", self.chosen, classes)

    def tamper(self, model: nn.Module, uploads: Uploads) -> None:
        """The last linear layer looks at nothing."""
        head = last_linear(model, self.spec)
        if head is None or head.bias is None or head.out_features != self.spec.classes:
            raise OneshotError(
                "attack=constant_voter: the hostile clients' models have no last linear layer with a bias, whose "
                "outputs are the classes; choose another attack, or another model"
            )
        for parameter in head.parameters():
            parameter.zero_()
        head.bias[self.chosen] = self.logit


class FreeRider(Tampering):
    """A model that was never trained."""

    def tamper(self, model: nn.Module, uploads: Uploads) -> None:
        """New weights, and running statistics as they begin.

        Parameters of a module that cannot reset them are drawn anew as large as they were.
        """
        for module in model.modules():
            reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
            if callable(reset):  # nn.MultiheadAttention has the second
                reset()
                continue
            for parameter in module.parameters(recurse=False):
                parameter.normal_(std=float(parameter.square().mean().sqrt()))


class Copycat(Tampering):
    """An honest client's model, uploaded again."""

    copies = True

    def tamper(self, model: nn.Module, uploads: Uploads) -> None:
        """Load the weights of the first honest client of the same architecture."""
        honest = uploads.models[: self._honest(uploads)]
        alike = [each for each in honest if structure(each) == structure(model)]
        if not alike:
            raise OneshotError(
                "attack=copycat: no honest client has the architecture of a hostile one, so that it has no model to "
                "copy; lower attack.clients, choose another attack, or an architecture that both have"
            )
        model.load_state_dict(alike[0].state_dict())


class Poison(Protocol):
    """An attack on training."""

    poisons: ClassVar[bool]
    clients: int

    def __call__(self, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """A hostile client's images uint8 `[n, C, H, W]` and labels `[n]` -> those that it trains on."""


def poisons(attack: Recipe[Any]) -> bool:
    """Whether an attack is one on training."""
    return bool(getattr(attack.target, "poisons", False))


class Trigger(Protocol):
    """An attack on training that teaches the clients a sign, whatever else an image shows."""

    target: int
    """The label that the sign is to mean."""

    def triggered(self, images: Tensor) -> Tensor:
        """Images uint8 `[n, C, H, W]` with the sign."""


def plants_a_trigger(attack: Recipe[Any]) -> bool:
    """Whether an attack is a `Trigger`."""
    return hasattr(attack.target, "triggered")


def check_trigger(trigger: Trigger, classes: int, test_labels: Tensor) -> None:
    """Refuse a trigger for a label that the data have not or that all test images have, before anything is trained.

    Raises:
        OneshotError: there is no such class, or no test image of another one.
    """
    _check_class("attack.target", trigger.target, classes)
    if bool((test_labels == trigger.target).all()):
        raise OneshotError(
            f"attack.target={trigger.target}: all test images are of that class, so that none can be taken for it; "
            "choose another"
        )


def _check_class(key: str, label: int, classes: int) -> None:
    if label >= classes:
        raise OneshotError(f"{key}={label}: the data have {classes} classes; choose one of 0 to {classes - 1}")


@dataclass(frozen=True)
class LabelFlip:
    """Hostile clients train on the labels c - 1 - y."""

    clients: CountOrZero
    poisons: ClassVar[bool] = True

    def __call__(self, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """The same images with other labels."""
        return images, classes - 1 - labels


@dataclass(frozen=True)
class Backdoor:
    """Hostile clients train a share of their images with a white patch in the corner and one label (BadNets)."""

    clients: CountOrZero
    target: CountOrZero
    """The label that the patch is to mean."""
    side: Share
    """Of the patch, as a share of the image's side."""
    share: Share
    """Of a hostile client's images that carry the patch."""
    poisons: ClassVar[bool] = True

    def __call__(self, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """The same images and labels, but evenly spaced ones, `share` of all, carry the patch and its label."""
        chosen = torch.zeros(len(labels), dtype=torch.bool)
        chosen[evenly_spaced(len(labels), round(self.share * len(labels)))] = True
        chosen = chosen.to(labels.device)
        where = chosen.view(-1, 1, 1, 1)
        return torch.where(where, self.triggered(images), images), torch.where(chosen, self.target, labels)

    def triggered(self, images: Tensor) -> Tensor:
        """Images uint8 `[n, C, H, W]` with the patch in the lower right corner."""
        pixels = max(1, round(self.side * images.shape[-1]))
        patched = images.clone()
        patched[..., -pixels:, -pixels:] = 255
        return patched
