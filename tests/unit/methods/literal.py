"""The framework's side of the tests that write a method out with loops: the same uploads through slots and loop."""

from dataclasses import replace

import torch
from torch import nn

from oneshot_fl.config import experiment_of
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.parts.uploads import Server
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.distill import Distillation
from oneshot_fl.phases.global_model import Distilled, StudentPlan, distill
from oneshot_fl.recipe import Recipe
from tests.composing import compose_config
from tests.parts import SMALL

SETTINGS = Distillation(rounds=3, batch_size=8, bank="loop", clients_at_once=16, images=8, seed=11)


def student_of(recipe: Recipe[nn.Module]) -> nn.Module:
    """The student as the framework builds it."""
    return Architecture(recipe).student(SMALL, SETTINGS.seed)


def by_the_loop(
    *overrides: str, server: Server, students: tuple[Recipe[nn.Module], ...], context: Context, rounds: int = 3
) -> Distilled:
    """What the method that these overrides choose makes of the server's uploads."""
    method = experiment_of(compose_config("distill.batch_size=8", *overrides)).method
    part = (torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.arange(6) % 3)
    return distill(
        ImageBatches(*part, spec=SMALL, batch_size=8),
        server,
        method,
        data_key="zeros",
        student=StudentPlan(tuple(map(Architecture, students)), clients_seed=0),
        settings=replace(SETTINGS, rounds=rounds),
        context=context,
    )
