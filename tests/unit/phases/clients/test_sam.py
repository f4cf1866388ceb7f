"""Sharpness-aware minimisation, against steps derived by hand."""

from dataclasses import replace
from math import log

import pytest
import torch
from torch import nn

from oneshot_fl.data.dataset import DataSpec, make_dataset
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.sam import running_statistics_kept
from oneshot_fl.phases.clients.train import ClientPlan, train_clients
from oneshot_fl.phases.clients.training import Training
from tests.parts import recipe_of

LN3 = log(3)


class OneWeight(nn.Module):
    """Logits (w x, 0), so that an image x = 1 of class 0 has the loss ln(1 + exp(-w))."""

    def __init__(self, spec: DataSpec) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.w * x.flatten(1), torch.zeros(len(x), 1)], dim=1)


def _train(context, build, images, *, epochs, momentum=0.0, lr=1.0, sam=LN3):
    labels = torch.zeros(len(images), dtype=torch.long)
    split = (images.to(torch.uint8), labels)
    data = make_dataset(name="x", train=split, test=split, class_names=("a", "b"), mean=[0.0], std=[1.0])
    logged = []
    context.log.log = lambda metrics, step: logged.append(metrics["clients/00/loss"])
    sgd = recipe_of(torch.optim.SGD, lr=lr, momentum=momentum)
    training = Training(epochs=epochs, batch_size=4, optimizer=sgd, seed=0, sam=sam)
    plan = ClientPlan(Architecture(recipe_of(build)), training, Classifier())
    (client,) = train_clients(data, [torch.arange(len(images))], [plan], context=context)
    return client.upload.model, logged


WHITE = torch.full((2, 1, 1, 1), 255)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_step(context, momentum):
    """g(0) = -sigmoid(0) = -1/2 points down, so the second gradient is taken at -ln 3: -sigmoid(ln 3) = -3/4."""
    model, losses = _train(context, OneWeight, WHITE, epochs=1, momentum=momentum, lr=2.0)
    assert model.w.item() == pytest.approx(1.5)
    assert losses == [pytest.approx(log(2))]  # the loss at w = 0, not ln 4, that at -ln 3


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_second_step_keeps_the_momentum_of_the_first(context, momentum):
    """With lr = 4/3 ln 3 the first step ends at ln 3, and the second gradient, taken at 0, is -1/2."""
    model, losses = _train(context, OneWeight, WHITE, epochs=2, momentum=momentum, lr=LN3 * 4 / 3)
    assert model.w.item() == pytest.approx(LN3 + LN3 * 4 / 3 * (0.5 + 0.75 * momentum))
    assert losses == [pytest.approx(log(2)), pytest.approx(log(4 / 3))]


class TwoWeights(nn.Module):
    """Logits (3 a + 4 b, 0)."""

    def __init__(self, spec: DataSpec) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([3 * self.a + 4 * self.b, torch.zeros(())]).expand(len(x), 2)


def test_all_weights_share_the_radius(context):
    """g(0) = -(3, 4) / 2, so at radius 1 the point beside 0 is -(3, 4) / 5, its logit -5, its gradient -s(5) (3, 4)."""
    model, _ = _train(context, TwoWeights, WHITE, epochs=1, sam=1.0)
    share = torch.sigmoid(torch.tensor(5.0)).item()
    assert (model.a.item(), model.b.item()) == (pytest.approx(3 * share), pytest.approx(4 * share))


def linear(spec: DataSpec) -> nn.Module:
    layer = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(nn.Flatten(), layer)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_second_pass_sees_the_moved_weights_also_in_mixed_precision(context, precision):
    """g(0) = (-1/2, 1/2); at radius ln 3 / sqrt(2) the logits beside 0 differ by -ln 3, where g = (-3/4, 3/4)."""
    context = replace(context, trainer=replace(context.trainer, precision=precision))
    model, _ = _train(context, linear, WHITE, epochs=1, sam=LN3 / 2**0.5)
    assert model[1].weight.flatten().tolist() == pytest.approx([0.75, -0.75], rel=0.01)


def normalised(spec: DataSpec) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1), nn.Linear(1, 2))


def test_a_batch_counts_once_in_the_running_statistics(context):
    """Pixels 0 and 1: running mean 0.9 * 0 + 0.1 * 0.5; a second count would make it 0.095."""
    model, _ = _train(context, normalised, torch.tensor([0, 255]).view(2, 1, 1, 1), epochs=1)
    assert model[1].running_mean.item() == pytest.approx(0.05)
    assert model[1].num_batches_tracked == 1
    assert model[1].track_running_stats


def test_the_second_pass_normalises_by_the_batch_too():
    norm = nn.BatchNorm1d(1)
    x = torch.tensor([[2.0], [4.0]])
    with running_statistics_kept(norm):
        torch.testing.assert_close(norm(x), torch.tensor([[-1.0], [1.0]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(1), nn.InstanceNorm1d(1, track_running_stats=True)], ids=type)
def test_the_second_pass_leaves_running_statistics_alone_and_the_next_first_one_does_not(norm):
    x = torch.tensor([[[2.0, 4.0]]])
    with running_statistics_kept(norm):
        norm(x)
    assert float(norm.running_mean) == 0
    norm(x)
    assert float(norm.running_mean) == pytest.approx(0.3)  # a tenth of 3
