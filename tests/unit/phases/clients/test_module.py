"""Supervised training of a client, its steps by hand; with SAM: `test_sam.py`."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from oneshot_fl.phases.clients.module import ClientModule
from oneshot_fl.phases.trainer import trainer_of
from tests.parts import CPU


def test_an_epoch_is_a_step_a_batch_and_its_mean_loss():
    """At w = 0 the loss of x = 1, class 0, is ln 2 with gradient (-1/2, 1/2); then w = (1, -1): ln(1 + exp(-2))."""
    layer = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(layer.weight)
    batch = torch.ones(1, 1), torch.zeros(1, dtype=torch.long)
    module = ClientModule(layer, partial(torch.optim.SGD, lr=2.0), [batch, batch])
    with trainer_of(module, CPU) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    assert module.epoch_losses == [pytest.approx((math.log(2) + math.log1p(math.exp(-2))) / 2)]
    p = 1 / (1 + math.exp(2))
    assert module.model.weight.flatten().tolist() == pytest.approx([1 + 2 * p, -1 - 2 * p])
