import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import build
from oneshot_fl.methods import dfdg as module
from oneshot_fl.methods.dfdg import Conditional, Transfer, TwoGenerators, likeness, overlap
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.parts.slots import Turn
from oneshot_fl.phases.distill import DistillModule
from oneshot_fl.phases.trainer import trainer_of
from oneshot_fl.recipe import Recipe
from oneshot_fl.seeds import torch_generator
from tests.composing import compose_config
from tests.parts import CPU, SMALL, recipe_of, server_of

LOG3 = math.log(3.0)
SURE, TORN, WRONG = [LOG3, 0.0], [0.0, 0.0], [0.0, LOG3]


class _View:
    """Two images of class 0; softmax of SURE is [3/4, 1/4]."""

    y = torch.tensor([0, 0])
    teacher = torch.tensor([SURE, SURE])
    student = torch.tensor([WRONG, SURE])


def test_transfer_counts_images_on_which_the_teacher_alone_is_right():
    # KL([1/4, 3/4] || [3/4, 1/4]) = -1/4 log 3 + 3/4 log 3, a mean over the one image that counts
    assert_close(Transfer(1.0, temperature=1.0)(_View()), torch.tensor(-LOG3 / 2))


def test_transfer_has_no_square_of_its_temperature_and_trains_the_teachers_side_only():
    class Leaves(_View):
        teacher = (2 * _View.teacher).requires_grad_()
        student = (2 * _View.student).requires_grad_()

    value = Transfer(1.0, temperature=2.0)(Leaves())
    assert_close(value, torch.tensor(-LOG3 / 2))
    value.backward()
    assert Leaves.student.grad is None
    # d -KL(p || softmax(t / T)) / dt = (p - softmax(t / T)) / T, of the first image alone
    assert_close(Leaves.teacher.grad, torch.tensor([[-0.25, 0.25], [0.0, 0.0]]))


def test_transfer_of_no_image_is_0():
    class Agree(_View):
        student = _View.teacher

    assert Transfer(1.0, temperature=1.0)(Agree()).item() == 0


def test_likeness_is_1_for_images_that_are_alike_and_falls_with_both_distances():
    h, x = torch.tensor([[0.0, 0.0], [0.0, 2.0]]), torch.tensor([[[0.0]], [[3.0]]])
    # d(h) = (0 + 4) / 2 = 2, d(x) = 9: two pairs of four have 18, the others 0
    assert_close(likeness(h, x), torch.tensor(math.exp(-9.0)))
    assert_close(likeness(h, torch.ones(2, 1, 1)), torch.tensor(1.0))


def test_distances_of_images_that_are_nearly_alike_are_those_of_single_precision_also_in_mixed():
    x = 1 + 0.01 * torch.randn(8, 3, 8, 8, generator=torch_generator(0))
    h = torch.randn(8, 4, generator=torch_generator(1))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = likeness(10 * h, x)
    assert_close(mixed, likeness(10 * h, x), rtol=1e-6, atol=0)


def test_overlap_is_minus_the_mean_divergence_over_all_pairs():
    others, own = torch.tensor([SURE, TORN]), torch.tensor([WRONG, TORN, SURE])
    # from [3/4, 1/4] to [1/4, 3/4], [1/2, 1/2] and itself, and from [1/2, 1/2] to the three
    to_torn = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    from_torn = 0.5 * math.log(2.0) + 0.5 * math.log(2 / 3)
    expected = -(LOG3 / 2 + to_torn + 0 + from_torn + 0 + from_torn) / 6
    assert_close(overlap(others, own, 1.0), torch.tensor(expected))
    assert_close(overlap(4 * others, 4 * own, 4.0), torch.tensor(expected))


def test_overlap_trains_ones_own_images_only():
    others, own = (torch.randn(4, 3).requires_grad_() for _ in range(2))
    overlap(others, own, 10.0).backward()
    assert others.grad is None
    assert own.grad.abs().sum() > 0


@pytest.mark.parametrize("temperature", [5.0, 10.0, 20.0])
def test_the_students_loss_is_twice_the_divergence_without_the_square_of_its_temperature(temperature):
    settings = compose_config("method=dfdg", f"method.student.kl.temperature={temperature}").method.student.kl
    term = build(settings)

    class Softened(_View):
        teacher, student = temperature * _View.teacher, temperature * torch.tensor([TORN, TORN])

    divergence = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert_close(term.weight * term(Softened()), torch.tensor(2 * divergence))


def _generator() -> Recipe[ConvGenerator]:
    return recipe_of(ConvGenerator, noise=4, width=2)


def test_a_conditional_generator_multiplies_noise_with_the_labels_embedding():
    made = Conditional(_generator()(spec=SMALL), classes=3, noise=4)
    with torch.no_grad():
        made.labels.weight.copy_(torch.tensor([1.0, 2.0, 3.0]).view(3, 1).expand(3, 4))
    z, y = torch.randn(3, 4), torch.tensor([2, 0, 0])
    x, h = made(z, y)
    assert_close(h, z * torch.tensor([3.0, 1.0, 1.0]).view(3, 1))
    assert_close(x, made.generator(h))


COUNTS = torch.tensor([[3, 0, 0], [1, 0, 4]])


def _source(steps: int = 2, batch_size: int = 6, counts: torch.Tensor = COUNTS, **weights: float) -> TwoGenerators:
    source = TwoGenerators(
        server_of([nn.Identity()] * 2, label_counts=counts),
        generator=_generator(),
        optimizer=torch.optim.Adam,
        batch_size=batch_size,
        steps=steps,
        temperature=10.0,
        **{"likeness": 1.0, "overlap": 1.0, **weights},
    )
    source.begin(torch_generator(0))
    return source


class _Recorder:
    """What a source asks of its turn; the teacher's logits are pixel sums."""

    def __init__(self, source: TwoGenerators) -> None:
        self.source = source
        self.optimizer = torch.optim.Adam(source.parameters(), lr=0.01)
        self.moved: list[list[bool]] = []
        self.losses: list[float] = []
        self.labels: list[list[int]] = []
        self.handed: list[torch.Tensor] = []

    def teacher(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :3]

    def score(self, x: torch.Tensor, y: torch.Tensor, teacher: torch.Tensor | None = None) -> torch.Tensor:
        self.labels.append(y.tolist())
        assert torch.equal(teacher, self.teacher(x, y))
        return 0 * x.sum()

    def minimise(self, loss: torch.Tensor) -> None:
        before = [self._state(number) for number in range(2)]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.moved.append([not torch.equal(old, self._state(number)) for number, old in enumerate(before)])

    def _state(self, number: int) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in (self.source.first, self.source.second)[number].parameters()])

    def turn(self, seed: int = 1) -> Turn:
        return Turn(self.score, self.minimise, self.teacher, torch_generator(seed))


def test_each_generator_takes_its_steps_while_the_other_one_stays():
    source = _source(steps=3)
    recorder = _Recorder(source)
    made = source.make(recorder.turn())
    assert recorder.moved == [[True, False]] * 3 + [[False, True]] * 3
    assert made.x.shape == (12, 1, 8, 8)
    assert not made.x.requires_grad
    assert not torch.equal(made.x[:6], made.x[6:])
    assert made.y.tolist() == recorder.labels[0] * 2
    assert all(labels == recorder.labels[0] for labels in recorder.labels)  # both share them
    assert source.reset  # a new Adam every round


def test_labels_are_drawn_from_all_clients_counts_together():
    counts = torch.tensor([[3, 0, 0], [3, 0, 2]])
    source = _source(batch_size=4000, steps=1, counts=counts, likeness=0.0, overlap=0.0)
    y = source.make(Turn(lambda x, y, t: x.sum(), lambda loss: None, lambda x, y: x.flatten(1), torch_generator(1))).y
    assert_close(y.bincount(minlength=3) / len(y), torch.tensor([0.75, 0.0, 0.25]), atol=0.03, rtol=0)


@pytest.mark.parametrize(("weights", "expected"), [({"overlap": 0.0}, (0, 1)), ({"likeness": 0.0}, (-99, 0))])
def test_each_loss_of_the_source_has_a_weight(weights, expected):
    source = _source(**weights)
    recorder = _Recorder(source)
    source.make(recorder.turn())
    low, high = expected
    assert all(low < loss < high for loss in recorder.losses)
    with_nothing = _source(likeness=0.0, overlap=0.0)
    recorder = _Recorder(with_nothing)
    with_nothing.make(recorder.turn())
    assert recorder.losses == [0.0] * 4


def test_answers_are_compared_at_the_sources_temperature(monkeypatch):
    temperatures = []
    monkeypatch.setattr(module, "overlap", lambda others, own, t: temperatures.append(t) or overlap(others, own, t))
    source = _source()
    source.make(_Recorder(source).turn())
    assert temperatures == [10.0] * 4


def test_a_round_is_two_steps_of_the_student_and_the_pool_forgets_the_round_before():
    sizes = ("distill.generator_steps=1", "distill.batch_size=6", "generator.width=2", "generator.noise=4")
    experiment = experiment_of(compose_config("method=dfdg", *sizes))
    clients = [cnn2(SMALL, norm=True) for _ in range(2)]
    server = server_of(clients, label_counts=torch.tensor([[3, 1, 1], [1, 2, 4]]))
    distilled = DistillModule(
        cnn2(SMALL, norm=True),
        ClientBank(clients),
        experiment.method.loop(server, warm_up=False),
        spec=SMALL,
        settings=experiment.distillation,
    )
    with trainer_of(module, CPU, epochs=2) as trainer:
        trainer.fit(distilled, train_dataloaders=range(1))
    assert distilled.pool.size == 12
    assert len(distilled._terms["student"]) == 4  # no validation, which empties them after a round
    assert len(distilled._terms["generator"]) == 4  # a step of each of two generators
