"""IntactOFL's gate and its term for disagreement against numbers worked out by hand."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.methods.intactofl import Disagreement, LinearGate
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import Votes
from oneshot_fl.seeds import seeded_by, torch_generator
from tests.parts import SMALL, server_of

ONE_PIXEL = DataSpec(1, 1, 2, (0.5,), (0.5,))
LOG3 = math.log(3.0)


class _Linear(nn.Module):
    """Answers the image's only pixel times `says`; remembers what it was shown last."""

    def __init__(self, *says: float):
        super().__init__()
        self.says = nn.Parameter(torch.tensor(says))

    def forward(self, x):
        self.shown = x.detach()
        return x.flatten(1) * self.says


def _server(scale: float = 2.0) -> Server:
    """Client 0 says [scale x, 0], client 1 says [0, scale x]."""
    return server_of([_Linear(scale, 0.0), _Linear(0.0, scale)], spec=ONE_PIXEL)


def _gate(server: Server, weights=(0.0, 0.0), biases=(1.0, 1.0), **options) -> LinearGate:
    """A gate with these scores: weight times pixel plus bias."""
    gate = LinearGate(server, **{"lr": 0.1, "rounds": 2, "balance": 0.01, "odseta": 0.0} | options)
    gate.gate.copy_(torch.tensor([weights, biases]))
    return gate


def _entry(gate: LinearGate, images: int = 1) -> Entry:
    """Images of class 0 whose pixel is 1/2."""
    x, y = torch.full((images, 1, 1, 1), 0.5), torch.zeros(images).long()
    return Entry(x, y, gate.remember(_votes(x)), torch.ones(images))


def _votes(x: torch.Tensor) -> Votes:
    P = torch.stack([x.flatten(1) * torch.tensor(says) for says in ((2.0, 0.0), (0.0, 2.0))])
    return Votes(x, torch.zeros(len(x)).long(), P, [])


def _pool(gate: LinearGate) -> Pool:
    pool = Pool(server_of(spec=ONE_PIXEL), rounds=None)
    pool.add(_entry(gate))
    return pool


def test_scores_are_linear_in_the_pixels_without_softmax_and_divided_by_m():
    gate = _gate(_server(), weights=(4.0, -2.0), biases=(1.0, 0.0))
    # scores [4/2 + 1, -2/2] = [3, -1]; M = 1/2 (3 [1, 0] - [0, 1])
    assert_close(gate.weigh(torch.full((1, 1, 1, 1), 0.5)), torch.tensor([[1.5, -0.5]]))
    assert_close(gate(_votes(torch.full((1, 1, 1, 1), 0.5))), torch.tensor([[1.5, -0.5]]))
    assert_close(gate.recall(_entry(gate)), torch.tensor([[1.5, -0.5]]))


def test_the_loss_is_ce_and_a_hundredth_of_the_spread_and_kd_towards_the_plain_mean():
    gate = _gate(_server(), biases=(3.0, 1.0))
    # M = 1/2 (3 [1, 0] + [0, 1]) = [1.5, .5]; the scores [3, 1, 3, 1] of two images vary by 4/3; the mean is [.5, .5]
    ce = math.log(1 + math.exp(-1))
    q = 1 / (1 + math.exp(-0.25))
    kd = 16 * -0.5 * math.log(4 * q * (1 - q))
    loss = gate.loss(_entry(gate, images=2), torch_generator(0))
    assert_close(loss.item(), ce + 0.01 * math.sqrt(4 / 3) + kd)


def test_one_step_of_sgd():
    # Scores [1, 1]: M is the plain mean [.5, .5], no spread and no KD gradient. dCE/dM = [-1/2, 1/2], and M falls with
    # score k as half client k's answer [1, 0], [0, 1]: dCE/dscores = [-1/4, 1/4], half of that for the weights
    gate = _gate(_server())
    gate.refit(_pool(gate), 8, torch_generator(0))
    decay = 1e-4
    assert_close(gate.gate[0], torch.tensor([0.0125, -0.0125]))
    biases = torch.tensor([1 + 0.1 * (0.25 - decay), 1 - 0.1 * (0.25 + decay)])
    assert_close(gate.gate[1], biases, rtol=1e-6, atol=0)


def test_the_rate_falls_on_a_cosine_and_momentum_goes_on():
    gate = _gate(_server())
    gate.refit(_pool(gate), 8, torch_generator(0))
    before, velocity = gate.gate.clone(), gate.velocity.clone()
    gate.refit(_pool(gate), 8, torch_generator(1))
    assert_close(gate.gate - before, -0.05 * gate.velocity)
    assert (gate.velocity.abs() > 1.5 * velocity.abs()).all()  # 0.9 of the last and a gradient like it


@pytest.mark.parametrize("rounds", [0, 1])
def test_the_rate_stays_0_behind_the_end_of_the_cosine(rounds):
    gate = _gate(_server(), rounds=rounds)
    gate.rounds_done.fill_(2)
    before = gate.gate.clone()
    gate.refit(_pool(gate), 8, torch_generator(0))
    assert_close(gate.gate, before)


def test_gradients_are_clipped_to_norm_10():
    # As above with answers 200 times as large: dCE/dscores = [-50, 50], dCE/dweights = [-25, 25], together 79
    gate = _gate(_server(scale=400.0))
    gate.refit(_pool(gate), 8, torch_generator(0))
    assert gate.velocity.norm().item() == pytest.approx(10, abs=1e-3)


def test_the_gate_learns_on_images_one_step_away():
    server = server_of([_Linear(2.0, 0.0), _Linear(0.0, 1.0)], spec=ONE_PIXEL)  # alike, no image would be better
    gate = _gate(server, odseta=0.1)
    gate.loss(_entry(gate), torch_generator(0))
    for client in server.uploads.models:
        assert abs(client.shown.item() - 0.5) == pytest.approx(0.2)  # 0.1 of a pixel in units of its deviation, 1/2


def test_images_step_by_the_plain_mean_of_the_clients_whatever_the_gate_says():
    shown = []
    for biases in ((1.0, 1.0), (-1.0, 3.0)):  # the mixtures rise with the pixel and fall with it
        server = server_of([_Linear(2.0, 0.0), _Linear(0.0, 1.0)], spec=ONE_PIXEL)
        _gate(server, biases=biases, odseta=0.1).loss(_entry(_gate(server)), torch_generator(0))
        shown.append(server.uploads.models[0].shown.item())
    assert shown[0] == shown[1]


def test_the_gate_asks_the_clients_as_the_distillation_does_and_learns_the_same():
    alone, shared = _server(), _server()
    bank, asked = ClientBank(shared.uploads.models, at_once=1), []
    bank.register_forward_hook(lambda *_: asked.append(True))
    gates = [_gate(server, odseta=0.1) for server in (alone, replace(shared, bank=bank))]
    for gate in gates:
        gate.refit(_pool(gate), 8, torch_generator(0))
    assert torch.equal(gates[0].gate, gates[1].gate)
    assert asked == [True, True]  # for the perturbation, and about what it makes of the images


def test_what_was_learned_goes_on_where_it_stopped_and_holds_no_client():
    at_once, saved, resumed = (_gate(_server()) for _ in range(3))
    for seed in (0, 1):
        at_once.refit(_pool(at_once), 8, torch_generator(seed))
    saved.refit(_pool(saved), 8, torch_generator(0))
    state = {name: tensor.clone() for name, tensor in saved.state_dict().items()}
    assert set(state) == {"gate", "velocity", "rounds_done"}
    resumed.load_state_dict(state)
    resumed.refit(_pool(resumed), 8, torch_generator(1))
    assert torch.equal(resumed.gate, at_once.gate)


def test_the_first_gate_is_small_and_follows_from_the_seed_alone():
    """Not from what uploads are stored under, which is another key with every version of the code."""

    def made(seed: int, key: str) -> torch.Tensor:
        server = server_of([nn.Identity()] * 2, spec=SMALL)
        uploads = replace(
            server.uploads, classifiers=tuple(replace(each, key=key) for each in server.uploads.classifiers)
        )
        with seeded_by(seed):
            return LinearGate(replace(server, uploads=uploads), lr=0.1, rounds=2, balance=0.01, odseta=0.0).gate

    first = made(0, "aa")
    assert torch.equal(first, made(0, "bb"))
    assert not torch.equal(first, made(1, "aa"))
    assert first.shape == (65, 2)
    assert 0.1 < first.abs().max() <= 1 / 8


def test_disagreement_counts_images_on_which_the_gate_and_the_plain_mean_differ():
    # KL of [3/4, 1/4] from [1/4, 3/4] is log(3) / 2; on the second image both choose class 0
    plain = torch.tensor([[0.0, LOG3], [5.0, 0.0]])
    view = SimpleNamespace(teacher=torch.tensor([[LOG3, 0.0], [1.0, 0.0]]), plain_mean=plain)
    assert_close(Disagreement(1.0, temperature=1.0)(view), torch.tensor(-LOG3 / 4))
    sharper = SimpleNamespace(teacher=3 * view.teacher, plain_mean=3 * plain)
    assert_close(Disagreement(1.0, temperature=3.0)(sharper), torch.tensor(-9 * LOG3 / 4))
