import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from oneshot_fl.config import experiment_of
from oneshot_fl.methods.fedisca import NoiseAdapted, Trajectory
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.slots import Turn
from oneshot_fl.parts.terms import kl_divergence
from oneshot_fl.phases.distill import DistillModule
from oneshot_fl.phases.trainer import trainer_of
from oneshot_fl.seeds import torch_generator
from tests.composing import compose_config
from tests.parts import CPU, SMALL, server_of, votes_of

LOG3 = math.log(3.0)


def _trajectory(roll: int = 0, steps: int = 4, batch_size: int = 5) -> Trajectory:
    return Trajectory(server_of(), optimizer=torch.optim.Adam, batch_size=batch_size, steps=steps, roll=roll)


def _made(source: Trajectory, score, seed: int = 0):
    """One round whose step adds 1 to every pixel."""

    def minimise(loss: torch.Tensor) -> None:
        loss.backward()
        with torch.no_grad():
            source.generator.images += 1

    return source.make(Turn(score, minimise, None, torch_generator(seed)))


def test_a_trajectory_is_every_state_after_a_step_with_balanced_labels_and_rising_trust():
    made = _made(_trajectory(), lambda x, y: x.sum())
    snapshots = made.x.view(4, 5, 1, 8, 8)
    assert_close(snapshots - snapshots[0], torch.arange(4.0).view(4, 1, 1, 1, 1).expand_as(snapshots))
    start = torch.empty(5, 1, 8, 8).normal_(generator=torch_generator(0))
    assert_close(snapshots[0], start + 1)
    assert made.y.tolist() == [0, 1, 2, 0, 1] * 4  # three classes
    assert made.trust.tolist() == [share for share in (0.0, 0.25, 0.5, 0.75) for _ in range(5)]


def _labels_of_rounds(source: Trajectory, rounds: int) -> list[list[int]]:
    turn = Turn(lambda x, y: x.sum(), lambda loss: None, None, torch_generator(0))
    return [source.make(turn).y.tolist() for _ in range(rounds)]


def test_where_a_batch_is_too_small_for_all_classes_the_next_round_goes_on_with_the_others():
    assert _labels_of_rounds(_trajectory(steps=1, batch_size=2), 4) == [[0, 1], [2, 0], [1, 2], [0, 1]]
    assert _labels_of_rounds(_trajectory(steps=1, batch_size=4), 2) == [[0, 1, 2, 0]] * 2  # as the code


def test_which_class_is_next_is_saved_and_a_new_loop_begins_with_the_first():
    first, resumed = (_trajectory(steps=1, batch_size=2) for _ in range(2))
    _labels_of_rounds(first, 1)
    resumed.load_state_dict(first.state_dict())
    assert _labels_of_rounds(resumed, 1) == [[2, 0]]
    resumed.begin(torch_generator(0))
    assert _labels_of_rounds(resumed, 1) == [[0, 1]]


def test_every_round_begins_with_new_noise():
    source, rng = _trajectory(steps=1), torch_generator(0)
    first, second = (source.make(Turn(lambda x, y: x.sum(), lambda loss: None, None, rng)).x for _ in range(2))
    assert not torch.equal(first, second)
    assert source.reset


def test_the_batch_is_judged_rolled_as_one_and_kept_as_it_is():
    seen: list[torch.Tensor] = []
    source = _trajectory(roll=2, steps=60)
    source.make(Turn(lambda x, y: seen.append(x.detach()) or x.sum(), lambda loss: None, None, torch_generator(1)))
    images = source.generator.images.detach()
    shifts = [
        [(i, j) for i in range(-2, 3) for j in range(-2, 3) if torch.equal(x, images.roll((i, j), dims=(2, 3)))]
        for x in seen
    ]
    assert all(len(found) == 1 for found in shifts)  # one shift for all images of the batch
    assert {axis for found in shifts for axis in found[0]} == {-2, -1, 0, 1, 2}


class _Scaled(nn.Module):
    """One logit that is the mean pixel after BN, and one that is 0."""

    def __init__(self, mean: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1, eps=1e-12)
        self.norm.running_mean.fill_(mean)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(self.norm(x).mean(dim=(1, 2, 3)).unsqueeze(1), (0, 1))


X = torch.tensor([0.0, 2.0]).view(2, 1, 1, 1).expand(2, 1, 8, 8)  # normalised by themselves: -1 and 1


def _ensemble(adapt: str, temperature: float = 1.0) -> NoiseAdapted:
    models = [_Scaled(0.0), _Scaled(-2.0)]
    return NoiseAdapted(server_of(list(ClientBank(models).models)), temperature=temperature, adapt=adapt)


def test_recall_mixes_probabilities_as_far_as_an_image_is_trusted():
    ensemble = _ensemble("batch")
    votes = votes_of(torch.stack([model(X) for model in ensemble.clients]).detach())
    kept = ensemble.remember(votes)
    assert_close(kept, torch.tensor([[1.0, 0.0], [3.0, 0.0]]))  # E: the mean of 0 and 2, and of 2 and 4
    answers = [ensemble.recall(Entry(X, votes.y, kept, torch.full((2,), trust))) for trust in (1.0, 0.25, 0.0)]
    assert_close(answers[0], kept)
    own, other = torch.sigmoid(torch.tensor([1.0, 3.0])), torch.sigmoid(torch.tensor([-1.0, 1.0]))
    assert_close(answers[1].softmax(1)[:, 0], 0.25 * own + 0.75 * other)
    assert_close(answers[2].softmax(1)[:, 0], other)


def test_the_mixture_has_the_gradient_of_both_divergences():
    own, other = torch.tensor([[LOG3, 0.0, 1.0]]), torch.tensor([[-1.0, 2.0, 0.5]])
    ensemble = NoiseAdapted(server_of(), temperature=20.0, adapt="batch")
    ensemble._adapted = lambda x: other
    mixed = ensemble.recall(Entry(torch.zeros(1), torch.zeros(1), own, torch.tensor([0.3])))
    gradients = []
    for loss in (
        lambda s: kl_divergence(mixed, s, 20.0),
        lambda s: 0.3 * kl_divergence(own, s, 20.0) + 0.7 * kl_divergence(other, s, 20.0),
    ):
        student = torch.tensor([[0.2, -0.4, 3.0]], requires_grad=True)
        loss(student).sum().backward()
        gradients.append(student.grad)
    assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)
    assert gradients[0].abs().max() > 0.1


def test_running_statistics_follow_the_trajectory_from_its_end_to_its_beginning():
    ensemble = _ensemble("running")
    pool = Pool(server_of(), rounds=1, shuffle=False)
    x = torch.cat([X, X + 4])  # means 1 and 5, unbiased variances 128/127
    pool.add(Entry(x, torch.zeros(4).long(), torch.zeros(4, 2), torch.zeros(4)))
    ensemble.refit(pool, 2, torch_generator(0))
    # means 0 -> 0.5 -> 0.45 + 0.1 and -2 -> -1.3 -> -1.17 + 0.1: the last batch, X, counts most
    assert [round(model.norm.running_mean.item(), 5) for model in ensemble.moved] == [0.55, -1.07]
    variance = 0.81 + 0.19 * 128 / 127
    entry = next(pool.batches(2, torch_generator(0)))
    expected = torch.tensor([(0 + 0.26) / variance**0.5, (2 + 0.26) / variance**0.5])  # of -0.55 and 1.07
    assert_close(ensemble.recall(entry).softmax(1)[:, 0], torch.sigmoid(expected))
    assert [model.norm.running_mean.item() for model in ensemble.clients] == [0.0, -2.0]
    ensemble.refit(pool, 2, torch_generator(0))  # the next round begins at the clients' own again
    assert round(ensemble.moved[0].norm.running_mean.item(), 5) == 0.55
    assert not ensemble.state_dict()


def _module(*overrides: str, clients: list[nn.Module]) -> DistillModule:
    sizes = ("distill.generator_steps=3", "distill.batch_size=6", "distill.rounds=4")
    experiment = experiment_of(compose_config("method=fedisca", *sizes, *overrides))
    loop = experiment.method.loop(server_of(clients), warm_up=False)
    return DistillModule(
        cnn2(SMALL, norm=True), ClientBank(clients), loop, spec=SMALL, settings=experiment.distillation
    )


def _run(module: DistillModule) -> None:
    with trainer_of(module, CPU) as trainer:
        trainer.fit(module, train_dataloaders=range(1))


@pytest.mark.parametrize("adapt", ["batch", "running"])
def test_a_round_steps_over_the_snapshots_in_their_order_and_leaves_the_clients_alone(adapt, monkeypatch):
    clients = [cnn2(SMALL, norm=True) for _ in range(2)]
    states = copy.deepcopy([client.state_dict() for client in clients])
    module = _module(f"method.ensemble.adapt={adapt}", clients=clients)
    trusted: list[list[float]] = []
    loss = module._student_loss
    monkeypatch.setattr(
        module, "_student_loss", lambda entry, drawn: trusted.append(entry.trust.tolist()) or loss(entry, drawn)
    )
    _run(module)
    assert_close(torch.tensor(trusted), (torch.arange(3) / 3).view(3, 1).expand(3, 6))
    for client, state in zip(clients, states, strict=True):
        assert all(torch.equal(tensor, state[name]) for name, tensor in client.state_dict().items())


def test_without_batch_norm_both_teachers_are_one_and_the_bn_term_is_0():
    clients = [cnn2(SMALL, norm=False) for _ in range(2)]
    module = _module(clients=clients)
    _run(module)
    (entry,) = module.pool.entries
    for trust in (0.0, 0.5):
        recalled = module.ensemble.recall(entry._replace(trust=torch.full_like(entry.trust, trust)))
        assert_close(recalled, entry.answers, rtol=1e-4, atol=1e-5)
    assert all(values["bn"] == 0 for values in module._terms["generator"])
