"""Every model in conf/ that mixes no samples trains privately, or a line names it."""

from functools import cache

import pytest
import torch
from torch import nn

from oneshot_fl.config.compose import architecture, recipe
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.bank import has_batch_norm
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.phases.trainer import TrainerSettings, trainer_of
from oneshot_fl.seeds import torch_generator
from tests.composing import composed
from tests.contract.choices import choices
from tests.parts import recipe_of

DIGITS = DataSpec(1, 8, 10, (0.5,), (0.5,))
SAMPLES = 4
SGD = recipe_of(torch.optim.SGD, lr=0.1, momentum=0.9)
TRAINING = Training(epochs=1, batch_size=SAMPLES, optimizer=SGD, seed=0, epsilon=8.0, delta=0.1, clip=1.0)
ON_MANY_CPUS = TrainerSettings(accelerator="cpu", precision="bf16-mixed", channels_last=True)
SMALL = 2_000_000
"""Parameters of a model that is trained here; of a larger one the check takes a step of its own, which is enough."""


def _one_architecture(name: str) -> bool:
    """Whether it is one by its name alone: not several, and nothing left to say."""
    try:
        return bool(architecture(name))
    except OneshotError:
        return False


NAMES = [name for name in choices("model", 20) if _one_architecture(name)]
assert len(NAMES) >= 18, NAMES
OF_TORCHVISION = ["squeezenet1_0", "convnext_tiny", "swin_t"]
"""Without batch normalisation; the last two have what Opacus cannot train."""


@cache
def _architecture(name: str) -> Architecture:
    """A choice of conf/model, or a model of torchvision's that one of them stands for."""
    chosen = [f"model={name}"] if name in NAMES else ["model=torchvision", f"model.architecture={name}"]
    return Architecture(recipe(composed(*chosen).model))


def _refusal(name: str) -> str | None:
    try:
        Classifier().check(_architecture(name), TRAINING, [SAMPLES], DIGITS)
    except OneshotError as error:
        return str(error)
    return None


def _train_one_step(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """All weights before and after it."""
    images = torch.randint(256, (SAMPLES, 1, 8, 8), dtype=torch.uint8, generator=torch_generator(0))
    batches = ImageBatches(
        images, torch.arange(SAMPLES), spec=DIGITS, batch_size=SAMPLES, rng=torch_generator(0, "draws")
    )
    model = _architecture(name).as_clients_begin(DIGITS, 0)
    before = _weights(model)
    module = Classifier().module(model, TRAINING, batches, DIGITS)
    with trainer_of(module, ON_MANY_CPUS) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    return before, _weights(model)


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def _size(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("name", [*NAMES, *OF_TORCHVISION])
def test_a_model_trains_privately_or_a_line_says_why_not(name):
    refused, model = _refusal(name), _architecture(name).build(DIGITS)
    if has_batch_norm(model):
        assert "batch normalisation" in refused
    elif refused is not None:
        assert refused.startswith(f"model={name}: Opacus cannot train it privately")
    elif _size(model) < SMALL:
        before, after = _train_one_step(name)
        assert after.isfinite().all()
        assert (after != before).float().mean() > 0.99  # the noise is everywhere


def test_not_few_models_train_privately():
    models = {name: _architecture(name).build(DIGITS) for name in NAMES}
    small = [name for name, model in models.items() if _size(model) < SMALL and not has_batch_norm(model)]
    private = [name for name in small if _refusal(name) is None]
    assert len(private) >= 10, private
