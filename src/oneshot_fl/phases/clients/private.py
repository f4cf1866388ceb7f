"""Local training with differential privacy: DP-SGD (Abadi et al., "Deep Learning with Differential Privacy", 2016).

Every step draws each sample with the same probability, clips each sample's gradient and adds noise to their sum. How
much noise, follows from what may be spent in all communication rounds together. The guarantee is Opacus's accountant's,
for a client's models alone, and for adding or removing one sample; label counts that a client uploads beside them are
not covered. In a run noise comes from a seeded generator, so that it repeats; in an upload that leaves, from `secret`.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, cast

import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import MAX_SIGMA, get_noise_multiplier
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError, one_line
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.bank import has_batch_norm
from oneshot_fl.models.layout import keep_contiguous, to_channels_last
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.phases.clients.module import Batch, ClientModule
from oneshot_fl.phases.clients.secret import SecretNoise, uniform
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.seeds import seeded

UNCLIPPED = 1e9
"""Longer than any gradient of a model that has just begun."""


class PrivateModule(ClientModule):
    """The supervised training of one client, within a budget of privacy.

    Args:
        batches: over the client's samples; they are drawn anew here, each with the same probability.
        training: with `epsilon`, `delta` and `clip`.

    Raises:
        OneshotError: the model mixes samples, or the guarantee would say nothing or cannot be given.
    """

    def __init__(
        self, model: nn.Module, optimizer: OptimizerFactory, batches: Iterable[Batch], *, training: Training
    ) -> None:
        whole = cast(ImageBatches, batches)
        samples = len(whole.labels)
        _check(model, training, samples)
        self.rate, self.steps = _draws(training, samples)
        self.training_settings = training
        draw = uniform if self.secret else partial(torch.rand, generator=whole.rng)
        super().__init__(model, optimizer, PoissonBatches(whole, self.rate, self.steps, draw=draw))
        self.expected, self.noise = self.rate * samples, _noise(training, self.rate, self.steps)
        self.per_sample = _by_sample(model)

    @property
    def secret(self) -> bool:
        """Whether nobody can draw its noise and samples again."""
        return self.training_settings.randomness == "system"

    def step(self, batch: Batch, optimizer: Any) -> Tensor:
        """In single precision from the images to the weights: gradients of single samples, clipping and noise ask it.

        Autocast would also multiply the clipped gradients, and hand weights sums that are not of their kind.
        """
        with torch.autocast(batch[0].device.type, enabled=False):
            return super().step(batch, optimizer) if len(batch[1]) else self._noise_alone(optimizer)

    def _noise_alone(self, optimizer: Any) -> Tensor:
        """The step of a draw without a sample, which shows by nothing that there was none; its loss is 0.

        Nothing goes through the model, because not every layer can be differentiated for no sample.
        """
        optimizer.zero_grad()
        parameters = list(self.model.parameters())
        for parameter in parameters:
            parameter.grad_sample = parameter.new_zeros(0, *parameter.shape)  # type: ignore[attr-defined]  # Opacus's
        optimizer.step()
        return parameters[0].new_zeros(())

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy."""
        return F.cross_entropy(self.per_sample(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The client's optimiser, with clipped gradients and noise."""
        kind = SecretNoise if self.secret else DPOptimizer
        optimizer = kind(
            self.optimizer(self.model.parameters()),
            noise_multiplier=self.noise,
            max_grad_norm=cast(float, self.training_settings.clip),
            expected_batch_size=round(self.expected),
        )
        optimizer.attach_step_hook(_lay_gradients_like_weights)
        return optimizer

    def facts(self, earlier: int = 0) -> dict[str, Any]:
        """The epsilon that this and `earlier` communication rounds have spent, and the noise, in units of `clip`.

        A guarantee is rounded up.
        """
        settings = self.training_settings
        steps = self.steps * (earlier * settings.epochs + len(self.epoch_losses))
        spent = _spent(self.noise, self.rate, steps, cast(float, settings.delta)) if steps else 0.0
        return {"epsilon": math.ceil(spent * 1e4) / 1e4, "noise": self.noise}


def check_private(architecture: Architecture, training: Training, samples: Iterable[int], spec: DataSpec) -> None:
    """Refuse before anybody trains what would be refused when one client's turn has come.

    Args:
        samples: how many each client of this architecture has.

    Raises:
        OneshotError: the model mixes samples, or Opacus cannot train it; or a client's guarantee would say nothing, or
            cannot be given.
    """
    model = architecture.as_clients_begin(spec, training.seed)
    for count in dict.fromkeys(samples):
        _check(model, training, count)
    with seeded(training.seed, "private trial"):
        _try_apart(model, architecture.name, spec)
        _try(model, architecture.name, spec)


def _try_apart(model: nn.Module, name: str, spec: DataSpec) -> None:
    """Two batches that differ in one image: nothing else of the model's may, neither answers nor what it keeps.

    Layers by name would not do: a model may normalise a batch in its own lines.
    """
    images = torch.rand(3, spec.channels, spec.size, spec.size)
    one, other = (_answered(model, images[[0, last]]) for last in (1, 2))
    if not all(torch.allclose(a.double(), b.double(), equal_nan=True) for a, b in zip(one, other, strict=True)):
        raise OneshotError(
            f"model={name}: what it answers to an image, or keeps beside its weights, depends on the other images of a "
            "batch, which clipping single gradients does not bound; choose another, for instance model=cnn2_group or "
            "cnn3_group"
        )


def _answered(model: nn.Module, images: Tensor) -> list[Tensor]:
    """The answer to the first image, while training, and every buffer after that."""
    tried = copy.deepcopy(model).train()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return [tried(images)[0], *tried.buffers()]


def _try(model: nn.Module, name: str, spec: DataSpec) -> None:
    """A step on two images: whether Opacus can train a model, and takes its gradients as they are, only that tells."""
    x, y = torch.rand(2, spec.channels, spec.size, spec.size), torch.arange(2) % spec.classes
    plain = copy.deepcopy(model)
    nowhere = torch.optim.SGD(model.parameters(), lr=0.0)
    try:
        optimizer = DPOptimizer(nowhere, noise_multiplier=0.0, max_grad_norm=UNCLIPPED, expected_batch_size=2)
        by_sample = _by_sample(model)
        to_channels_last(by_sample)  # as a Trainer asks of every module
        with warnings.catch_warnings(action="ignore"):  # that images have no gradients
            _send_back(by_sample, x, y)
        optimizer.step()
    except Exception as error:  # whatever Opacus raises is its answer to this model
        raise _not_private(name, one_line(error)) from error
    _send_back(plain, x, y)
    gradients = [parameter.grad for parameter in plain.parameters() if parameter.grad is not None]
    rounding = 1e-5 * float(nn.utils.get_total_norm(gradients))
    for (layer, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        if not _alike(ours.grad, theirs.grad, rounding=rounding):
            raise _not_private(name, f"the gradient of {layer} that it adds up from single samples is another one")


def _send_back(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Gradients of the mean cross-entropy, with the same draws (of dropout) in every call."""
    with torch.random.fork_rng(devices=[]):
        F.cross_entropy(model(x), y).backward()


def _alike(one: Tensor | None, other: Tensor | None, *, rounding: float) -> bool:
    """Whether two gradients differ by rounding alone; one that a loss does not reach is 0.

    Args:
        rounding: what is none of a gradient, as of a bias that a normalisation takes out: that is 0 but for it.
    """
    if one is None or other is None:
        return all(each is None or not each.any() for each in (one, other))
    return bool((one - other).norm() <= 1e-3 * other.norm() + rounding)


def _not_private(name: str, why: str) -> OneshotError:
    return OneshotError(
        f"model={name}: Opacus cannot train it privately ({why}); choose another, for instance model=cnn2_group or "
        "cnn3_group, or clients=default"
    )


def _by_sample(model: nn.Module) -> GradSampleModule:
    """The model as Opacus takes gradients of single samples.

    No layer may overwrite what one with a hook gave it, and what enters a convolution has to be contiguous: Opacus
    unfolds it by strides of that layout, so that in the other one most convolutions would get a gradient of 0.
    """
    keep_contiguous(model)
    overwriting: list[Any] = [module for module in model.modules() if getattr(module, "inplace", False)]
    for module in overwriting:
        module.inplace = False
    return GradSampleModule(model)


def _lay_gradients_like_weights(optimizer: DPOptimizer) -> None:
    """Put the gradients that Opacus has summed in their weights' memory layout, which is up to who wrote the model.

    A fused optimiser on a CPU takes both in the order in which they lie in memory, and says nothing where that differs.
    """
    for parameter in optimizer.params:
        parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)


class PoissonBatches:
    """Normalised images and labels of `steps` draws in which every sample is there with probability `rate`.

    Args:
        draw: as many numbers between 0 and 1.
    """

    def __init__(self, whole: ImageBatches, rate: float, steps: int, *, draw: Callable[[int], Tensor]) -> None:
        self.whole, self.rate, self.steps, self.draw = whole, rate, steps, draw

    def __iter__(self) -> Any:
        whole = self.whole
        for _ in range(self.steps):
            chosen = (self.draw(len(whole.labels)) < self.rate).nonzero().flatten()
            index = chosen.to(whole.labels.device)
            images = whole.images[index]
            augmented = whole.augment(images) if whole.augment and len(index) else images
            yield whole.spec.to_input(augmented), whole.labels[index]


def _draws(training: Training, samples: int) -> tuple[float, int]:
    """With what probability each sample is drawn, and how many draws are an epoch."""
    steps = -(-samples // training.batch_size)  # rounded up; 1 / rate may be a hair above a whole number
    return min(1.0, training.batch_size / samples), steps


def _epochs(training: Training) -> int:
    """Of all communication rounds: each begins at a model that knows what the samples gave away in those before."""
    return training.epochs * training.communication_rounds


@cache  # clients of as many samples spend as much
def _spent(noise: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon of so many draws."""
    accountant = RDPAccountant()
    accountant.history = [(noise, rate, steps)]
    return accountant.get_epsilon(delta=delta)


def _noise(training: Training, rate: float, steps: int) -> float:
    """The least that spends no more than `epsilon` over all epochs of all communication rounds, in units of `clip`."""
    if training.epochs == 0:
        return 0.0
    epsilon, delta = cast(float, training.epsilon), cast(float, training.delta)
    return _least_noise(epsilon, delta, rate, steps * _epochs(training))


@cache
def _least_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    with warnings.catch_warnings(action="ignore"):  # of most noise that it tries: there is a finer accounting
        return get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=rate, steps=steps, accountant="rdp"
        )


def _check(model: nn.Module, training: Training, samples: int) -> None:
    if has_batch_norm(model):
        raise OneshotError(
            f"clients.epsilon={training.epsilon:g}: the clients' model has batch normalisation, which mixes samples; "
            "choose one without, for instance model=cnn2_group or cnn2_plain"
        )
    epsilon, delta = cast(float, training.epsilon), cast(float, training.delta)
    if delta >= 1 / samples:
        raise OneshotError(
            f"clients.delta={delta:g}: a client has {samples} samples, and a guarantee that fails that often "
            f"says nothing; set it to {0.9 / samples:.2g} or less"
        )
    if training.epochs > 0 and epsilon < (least := _least(training, samples)):
        raise OneshotError(
            f"clients.epsilon={epsilon:g}: no noise is enough for a client of {samples} samples at clients.delta="
            f"{delta:g}; set it to {1.1 * least:.2g} or more"
        )


def _least(training: Training, samples: int) -> float:
    """The epsilon with as much noise as Opacus tries: next to none of it is what gradients give away."""
    rate, steps = _draws(training, samples)
    with warnings.catch_warnings(action="ignore"):  # that a finer accounting would find a little less
        return _spent(MAX_SIGMA / 2, rate, steps * _epochs(training), cast(float, training.delta))
