"""Local training with differential privacy: DP-SGD (Abadi et al., "Deep Learning with Differential Privacy", 2016).

Every step draws each sample with the same probability, clips each sample's gradient and adds noise to their sum. How
much noise, follows from what may be spent. The guarantee is Opacus's accountant's, for a client's model alone, and for
adding or removing one sample; label counts that a client uploads beside it are not covered. Noise is drawn from a
seeded generator, so that runs repeat: with the seed kept secret.
"""

from collections.abc import Iterable
from typing import Any, cast

import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import has_batch_norm
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.phases.clients.module import Batch, ClientModule
from oneshot_fl.phases.clients.training import Training


class PrivateModule(ClientModule):
    """The supervised training of one client, within a budget of privacy.

    Args:
        batches: over the client's samples; they are drawn anew here, each with the same probability.
        training: with `epsilon`, `delta` and `clip`.

    Raises:
        OneshotError: the model mixes samples, or the guarantee would say nothing.
    """

    def __init__(
        self, model: nn.Module, optimizer: OptimizerFactory, batches: Iterable[Batch], *, training: Training
    ) -> None:
        whole = cast(ImageBatches, batches)
        samples = len(whole.labels)
        _check(model, training, samples)
        self.rate = min(1.0, training.batch_size / samples)
        self.steps = -(-samples // training.batch_size)  # rounded up; 1 / rate may be a hair above a whole number
        self.training_settings = training
        super().__init__(model, optimizer, PoissonBatches(whole, self.rate, self.steps))
        self.expected, self.noise = self.rate * samples, _noise(training, self.rate, self.steps)
        self.per_sample = _by_sample(model)

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
        optimizer = DPOptimizer(
            self.optimizer(self.model.parameters()),
            noise_multiplier=self.noise,
            max_grad_norm=cast(float, self.training_settings.clip),
            expected_batch_size=round(self.expected),
        )
        optimizer.attach_step_hook(_lay_gradients_like_weights)
        return optimizer

    def facts(self) -> dict[str, Any]:
        """The epsilon that was spent, and the noise, in units of `clip`."""
        accountant = RDPAccountant()
        accountant.history = [(self.noise, self.rate, self.steps * len(self.epoch_losses))]
        spent = accountant.get_epsilon(delta=cast(float, self.training_settings.delta)) if self.epoch_losses else 0.0
        return {"epsilon": round(spent, 4), "noise": self.noise}


def _by_sample(model: nn.Module) -> GradSampleModule:
    """The model as Opacus takes gradients of single samples: no layer may overwrite what one with a hook gave it."""
    overwriting: list[Any] = [module for module in model.modules() if getattr(module, "inplace", False)]
    for module in overwriting:
        module.inplace = False
    return GradSampleModule(model)


def _lay_gradients_like_weights(optimizer: DPOptimizer) -> None:
    """Put the gradients that Opacus has summed in their weights' memory layout, which may be channels-last.

    A fused optimiser on a CPU takes both in the order in which they lie in memory, and says nothing where that differs.
    """
    for parameter in optimizer.params:
        parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)


class PoissonBatches:
    """Normalised images and labels of `steps` draws in which every sample is there with probability `rate`."""

    def __init__(self, whole: ImageBatches, rate: float, steps: int) -> None:
        self.whole, self.rate, self.steps = whole, rate, steps

    def __iter__(self) -> Any:
        whole = self.whole
        for _ in range(self.steps):
            chosen = (torch.rand(len(whole.labels), generator=whole.rng) < self.rate).nonzero().flatten()
            index = chosen.to(whole.labels.device)
            images = whole.images[index]
            augmented = whole.augment(images) if whole.augment and len(index) else images
            yield whole.spec.to_input(augmented), whole.labels[index]


def _noise(training: Training, rate: float, steps: int) -> float:
    """The least that spends no more than `epsilon` over all epochs, in units of `clip`."""
    if training.epochs == 0:
        return 0.0
    return get_noise_multiplier(
        target_epsilon=cast(float, training.epsilon),
        target_delta=cast(float, training.delta),
        sample_rate=rate,
        steps=steps * training.epochs,
        accountant="rdp",
    )


def _check(model: nn.Module, training: Training, samples: int) -> None:
    if has_batch_norm(model):
        raise OneshotError(
            f"clients.epsilon={training.epsilon:g}: the clients' model has batch normalisation, which mixes samples; "
            "choose one without, for instance model=cnn2_group or cnn2_plain"
        )
    if cast(float, training.delta) >= 1 / samples:
        raise OneshotError(
            f"clients.delta={training.delta:g}: a client has {samples} samples, and a guarantee that fails that often "
            f"says nothing; set it below {1 / samples:.2g}"
        )
