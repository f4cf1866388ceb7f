"""What a round of the loop is made of."""

from functools import partial

import pytest
import torch
from torch import nn

from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.parts.ensembles import LogitAverage
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.slots import Loop, Made, Objective
from oneshot_fl.phases.distill import Distillation, DistillModule, frozen
from tests.parts import SMALL, FixedLogits, server_of

SETTINGS = Distillation(rounds=1, batch_size=4, bank="loop", clients_at_once=None, images=1, seed=0)


def test_frozen_blocks_gradients_and_running_statistics_and_then_lets_go():
    model = cnn2(SMALL, norm=True)
    before = model[1].running_mean.clone()
    with frozen(model):
        x = torch.randn(4, 1, 8, 8, requires_grad=True)
        model(x).sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(model[1].running_mean, before)
    assert model.training


def _module(clients: list[nn.Module], perturb=None) -> DistillModule:
    server, nothing = server_of(clients), Objective({})
    pool = Pool(server, rounds=None)
    loop = Loop(LogitAverage(server), {}, nothing, pool, nothing, partial(torch.optim.SGD, lr=0.1), perturb)
    return DistillModule(cnn2(SMALL, norm=False), ClientBank(clients), loop, classes=3, settings=SETTINGS)


@pytest.mark.parametrize(
    ("labels", "trust", "entered"),
    [
        (None, None, ([2, 2], [0.0, 0.0])),  # the clients' joint guess, for which nobody vouches
        ([0, 1], None, ([0, 1], [1.0, 1.0])),
        ([0, 1], [0.5, 0.25], ([0, 1], [0.5, 0.25])),
    ],
)
def test_images_enter_the_pool_with_labels_and_how_far_these_are_trusted(labels, trust, entered):
    clients = [FixedLogits([0.0, 4.0, 3.0]), FixedLogits([0.0, 0.0, 3.0])]
    made = Made(torch.rand(2, 1, 8, 8), *(None if given is None else torch.tensor(given) for given in (labels, trust)))
    entry = _module(clients)._entry(made)
    assert (entry.y.tolist(), entry.trust.tolist()) == entered
    assert entry.answers.tolist() == [[0.0, 2.0, 3.0]] * 2


class _Brighter:
    """Every pixel by one."""

    def __init__(self, *, keeps_answers: bool) -> None:
        self.keeps_answers = keeps_answers

    def __call__(self, x, teacher, rng):
        return x + 1


@pytest.mark.parametrize("keeps_answers", [True, False])
def test_of_a_perturbed_image_the_clients_are_asked_unless_their_answers_are_kept(keeps_answers, monkeypatch):
    client, x = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), torch.rand(2, 1, 8, 8)
    module, scored = _module([client], _Brighter(keeps_answers=keeps_answers)), []
    monkeypatch.setattr(module, "_score", lambda who, x, y, trust, teacher: scored.append((x, teacher)))
    module._student_loss(module._entry(Made(x, torch.tensor([0, 1]))))
    ((seen, taught),) = scored
    assert torch.equal(seen, x + 1)
    assert torch.allclose(taught, client(x if keeps_answers else x + 1))
