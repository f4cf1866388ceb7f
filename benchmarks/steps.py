"""Single steps of the framework's parts, to be set against the convolutions in them or against another way."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.runs import configuration
from benchmarks.scale import Scale
from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import build
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.parts.objective import objective_of
from oneshot_fl.parts.view import View
from oneshot_fl.phases.clients.classifier import ClientModule
from oneshot_fl.phases.stratify import StratifyModule
from oneshot_fl.phases.trainer import TrainerSettings, trainer_of
from oneshot_fl.seeds import torch_generator

Step = Callable[[], None]


def mixed(precision: str, device: str = "cpu") -> torch.autocast:
    """What Lightning's Trainer runs a step in."""
    return torch.autocast(device, torch.bfloat16, enabled=precision == "bf16-mixed")


class Steps:
    """The steps of one scale, precision and layout."""

    def __init__(
        self,
        scale: Scale,
        *,
        precision: str = "32-true",
        channels_last: bool = True,
        bank: Any = "loop",
        at_once: int | None = None,
        compiled: bool = False,
        device: str = "cpu",
    ) -> None:
        self.scale, self.spec, self.precision, self.device = scale, scale.data().spec, precision, device
        self.cfg = configuration("fedhydra", scale, f"+generator.compiled={compiled}")
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.bank = ClientBank([self._model() for _ in range(scale.clients)], mode=bank, at_once=at_once)

    def _model(self) -> nn.Module:
        return build(self.cfg.model, spec=self.spec).to(self.device, memory_format=self.layout)

    def _generator(self) -> ConvGenerator:
        return build(self.cfg.generator, spec=self.spec).to(self.device, memory_format=self.layout)

    def _labels(self) -> Tensor:
        return torch.randint(self.scale.classes, (self.scale.batch,), device=self.device)

    def _noise(self) -> Tensor:
        return torch.randn(self.scale.batch, self.scale.noise, device=self.device)

    def _adam(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """On a GPU one that counts its steps there, so that they can be replayed."""
        on_gpu = self.device == "cuda"
        return torch.optim.Adam(parameters, lr=0.001, fused=on_gpu or None, capturable=on_gpu)

    def training(self, *, compiled: bool = False) -> Step:
        """Of a client, and of the student on labels."""
        model, y = self._model(), self._labels()
        called = torch.compile(model) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        x = torch.randn(self.scale.batch, self.spec.channels, self.spec.size, self.spec.size, device=self.device)
        return partial(self._step, optimizer, lambda: F.cross_entropy(called(x).float(), y))

    def generation(self) -> Step:
        """Of DENSE's generator against all clients and a student."""
        student, generator = self._model().eval().requires_grad_(False), self._generator()
        objective = objective_of(experiment_of(configuration("dense", self.scale)).method.objective, "method.objective")
        optimizer = self._adam(generator.parameters())
        z, y = self._noise(), self._labels()

        def loss() -> Tensor:
            view = View(
                generator(z),
                y,
                student=student,
                bank=self.bank,
                ensemble=lambda votes: votes.P.mean(0),
                needs=objective.needs,
            )
            return objective(view)[0]

        return partial(self._step, optimizer, loss)

    def stratification(self, *, at_once: int) -> Step:
        """Of the generators of all classes for one client, `at_once` of them stacked."""
        steps = []
        for group in torch.arange(self.scale.classes).split(at_once):
            generator = self._generator()
            generator.reset(torch_generator(0))
            settings = {"classes": group.to(self.device), "z": self._noise(), "steps": 1, "optimizer": self._adam}
            module = StratifyModule(self._model(), generator, **settings)
            steps.append(partial(self._step, module.configure_optimizers(), partial(_total, module)))

        def all_groups() -> None:
            for step in steps:
                step()

        return all_groups

    def _step(self, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> None:
        with mixed(self.precision, self.device):
            value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def _total(module: StratifyModule) -> Tensor:
    return module.class_losses().sum()


class LocalTraining:
    """Four epochs of one client, with and without Lightning's Trainer."""

    epochs = 4

    def __init__(self, scale: Scale) -> None:
        data = scale.data()
        self.images, self.labels = data.train_images[: scale.samples], data.train_labels[: scale.samples]
        self.scale, self.spec, self.model = scale, data.spec, configuration("fedavg", scale).model

    def _module(self) -> ClientModule:
        sgd = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
        return ClientModule(
            build(self.model, spec=self.spec).to(memory_format=torch.channels_last), sgd, self._batches()
        )

    def _batches(self) -> ImageBatches:
        rng = torch_generator(0)
        return ImageBatches(self.images, self.labels, spec=self.spec, batch_size=self.scale.batch, rng=rng)

    def by_trainer(self) -> None:
        """As the program does it."""
        module, settings = self._module(), TrainerSettings("cpu", "32-true", channels_last=True)
        with trainer_of(module, settings, epochs=self.epochs) as trainer:
            trainer.fit(module, train_dataloaders=range(1))

    def by_hand(self) -> None:
        """The bare loop over the same batches."""
        module = self._module()
        optimizer = module.configure_optimizers()
        for batch in (batch for _ in range(self.epochs) for batch in module.batches):
            loss = module.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
