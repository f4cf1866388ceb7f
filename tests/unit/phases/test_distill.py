"""What a round of the loop is made of."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.fedmho import SelfDistillation
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.per_architecture import together
from oneshot_fl.parts.ensembles import Heard, LogitAverage, NoTeacher
from oneshot_fl.parts.method import Loop
from oneshot_fl.parts.objective import Objective
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.slots import Made
from oneshot_fl.parts.terms import Distillation as Divergence
from oneshot_fl.parts.view import View
from oneshot_fl.phases import distill
from oneshot_fl.phases.distill import Distillation, DistillModule, frozen
from oneshot_fl.phases.schedule import one_cycle
from oneshot_fl.phases.trainer import trainer_of
from tests.parts import CPU, SMALL, FixedLogits, server_of

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


def _module(clients: list[nn.Module], perturb=None, unknown=()) -> DistillModule:
    server, nothing = server_of(clients, unknown=unknown), Objective({})
    pool, bank = Pool(server, rounds=None), ClientBank(clients, heard=Heard(server))
    loop = Loop(LogitAverage(server), {}, nothing, pool, nothing, partial(torch.optim.SGD, lr=0.1), perturb)
    return DistillModule(cnn2(SMALL, norm=False), bank, loop, spec=SMALL, settings=SETTINGS)


def test_nobody_has_a_say_in_the_guess_on_a_class_without_an_output():
    clients, made = [FixedLogits([2.0, 0.0, -9.0]), FixedLogits([0.0, 0.0, 1.0])], Made(torch.rand(1, 1, 8, 8), None)
    guesses = [_module(clients, unknown=each)._entry(made).y.item() for each in ((), [(2,), ()])]
    assert guesses == [0, 2]  # the third: ln 0.58 by the other alone, the first: the mean of ln 0.88 and ln 0.21


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


@pytest.mark.parametrize(("together", "parts"), [(True, [4, 5]), (False, [4, 4, 1])])
def test_an_ensemble_that_normalises_by_the_batch_is_asked_about_no_single_image(together, parts, monkeypatch):
    module = _module([FixedLogits([0.0, 4.0, 3.0])])
    module.ensemble.by_the_batch, asked = together, list[int]()
    remember = module.ensemble.remember
    monkeypatch.setattr(module.ensemble, "remember", lambda votes: (asked.append(len(votes.y)), remember(votes))[1])
    entry = module._entry(Made(torch.rand(9, 1, 8, 8), torch.zeros(9, dtype=torch.long)))
    assert asked == parts
    assert len(entry.y) == len(entry.answers) == 9


class _Brighter:
    """Every pixel by what was drawn."""

    def __init__(self, *, keeps_answers: bool) -> None:
        self.keeps_answers = keeps_answers

    def __call__(self, x, teacher, drawn):
        return x.add_(drawn)  # in place, as a user's may


@pytest.mark.parametrize("keeps_answers", [True, False])
def test_of_a_perturbed_image_the_clients_are_asked_unless_their_answers_are_kept(keeps_answers, monkeypatch):
    client, x = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), torch.rand(2, 1, 8, 8)
    module, scored = _module([client], _Brighter(keeps_answers=keeps_answers)), []
    monkeypatch.setattr(module, "_score", lambda who, x, y, trust, teacher: scored.append((x, teacher)))
    module._student_loss(module._entry(Made(x, torch.tensor([0, 1]))), torch.ones(1))
    ((seen, taught),) = scored
    assert torch.equal(seen, x + 1)
    assert torch.allclose(taught, client(x if keeps_answers else x + 1))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "NoneType"),
        (torch.zeros(2, 1, 4, 4), r"shape \[2, 1, 4, 4\] \(float32\)"),
        (torch.zeros(1, 1, 8, 8), r"shape \[1, 1, 8, 8\] \(float32\)"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), r"shape \[2, 1, 8, 8\] \(uint8\)"),
    ],
)
def test_what_a_perturbation_of_ones_own_returns_instead_of_images_is_told_by_its_key(answer, told):
    module = _module([FixedLogits([0.0, 4.0, 3.0])], lambda x, teacher, drawn: answer)
    entry = module._entry(Made(torch.rand(2, 1, 8, 8), torch.tensor([0, 1])))
    line = rf"^method\.perturb: returns {told}, and must return as many .*, shape \[2, 1, 8, 8\] \(float32\) here$"
    with pytest.raises(OneshotError, match=line):
        module._student_loss(entry, torch.empty(0))


def test_pixels_that_a_perturbation_of_ones_own_makes_infinite_are_told_by_its_key_and_no_learning_rate_is_blamed():
    module = _module([FixedLogits([0.0, 4.0, 3.0])], lambda x, teacher, drawn: x / 0)
    given = [
        module._entry(Made(x, torch.tensor([0, 1])))
        for x in (torch.ones(2, 1, 8, 8), torch.full((2, 1, 8, 8), torch.inf))
    ]
    with pytest.raises(
        OneshotError, match=r"^method\.perturb: makes pixels that are not finite .* of images that are$"
    ):
        module._student_loss(given[0], torch.empty(0))
    module._student_loss(given[1], torch.empty(0))  # they came so: a source's generator diverged


def test_a_perturbation_of_ones_own_that_draws_no_tensor_is_told_by_its_key():
    module = _module([FixedLogits([0.0, 4.0, 3.0])], SimpleNamespace(draw=lambda count, rng: None))
    module.pool.add(module._entry(Made(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))))
    with pytest.raises(OneshotError, match=r"^method\.perturb: draw returns NoneType, and must return a tensor, "):
        next(module._lessons(moves=False, on_device=False))


class _Steps(nn.ModuleList):
    """A perturbation of several steps, of which there are none; it is false, and a perturbation."""

    def draw(self, count, rng):
        return torch.rand(count, generator=rng)


def test_a_perturbation_without_length_is_one_too():
    module = _module([FixedLogits([0.0, 4.0, 3.0])], _Steps())
    module.pool.add(module._entry(Made(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))))
    (lesson,) = module._lessons(moves=False, on_device=False)
    assert lesson.drawn.shape == (2,)


class _Given(nn.Module):
    """A source that hands over whatever it was given."""

    needs = frozenset()
    optimizer = None
    reset = False

    def __init__(self, made) -> None:
        super().__init__()
        self.made = made

    def begin(self, rng):
        """Nothing to draw."""

    def make(self, turn):
        return self.made


X = torch.zeros(2, 1, 8, 8)


def _one_round(made, ensemble=LogitAverage, other=None, **options) -> DistillModule:
    """All of a round; with two sources where another one is given too, and as many rounds as are asked for."""
    clients, settings = [FixedLogits([0.0, 4.0, 3.0])], replace(SETTINGS, **options)
    server, terms = server_of(clients), Objective({"kl": Divergence(1.0, temperature=1.0)})
    sources = {"own": made if isinstance(made, _Given) else _Given(made)} | ({} if other is None else {"other": other})
    sgd = partial(torch.optim.SGD, lr=0.1)
    loop = Loop(ensemble(server), sources, Objective({}), Pool(server, rounds=None), terms, sgd)
    module = DistillModule(cnn2(SMALL, norm=False), ClientBank(clients), loop, spec=SMALL, settings=settings)
    with trainer_of(module, CPU, epochs=settings.rounds) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    return module


class _Probabilities(LogitAverage):
    """Ends in a softmax, as no ensemble may."""

    def forward(self, votes):
        return super().forward(votes).softmax(dim=1)


def test_an_ensemble_of_a_users_own_that_answers_with_probabilities_is_refused():
    with pytest.raises(OneshotError, match=r"^method\.ensemble: answers with probabilities instead of logits; end it"):
        _one_round(Made(X, None), _Probabilities)


class _Negatives(_Given):
    """A source that makes the negative of every image that it is given of others."""

    def __init__(self) -> None:
        super().__init__(None)

    def make(self, turn):
        return Made(-torch.cat(turn.made), None)


@pytest.mark.parametrize("fused", [True, False])
def test_a_rate_that_moves_lies_on_the_device_for_steps_that_can_read_it_and_is_a_number_after_them(fused, monkeypatch):
    seen: list[object] = []
    rates: list[object] = []

    def steps(step, given, *, optimizer):
        seen.append(optimizer)
        return [step(each) for each in given]

    monkeypatch.setattr(distill, "repeated", steps)
    module = _module([nn.Sequential(nn.Flatten(), nn.Linear(64, 3))])
    module.schedule, module.replays = "one_cycle", True
    module.settings = replace(SETTINGS, rounds=10)
    module.objectives["student"] = Objective({"kl": Divergence(1.0, temperature=1.0)})
    module.pool.add(module._entry(Made(torch.rand(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))))
    own = torch.optim.SGD(module.student.parameters(), lr=0.1, fused=fused)
    monkeypatch.setattr(
        distill, "minimise", lambda module, loss, optimizer: rates.append(optimizer.param_groups[0]["lr"])
    )
    module._one_pass(LightningOptimizer(own))
    assert seen == [own if fused else None]
    assert [float(rate) for rate in rates] == pytest.approx([0.1 * one_cycle(0.0), 0.1 * one_cycle(0.05)])
    assert {isinstance(rate, torch.Tensor) for rate in rates} == {fused}
    assert own.param_groups[0]["lr"] == 0.1 * one_cycle(0.1)


def _levels(images) -> set[float]:
    return set(images.mean(dim=(1, 2, 3)).tolist())


def test_what_is_held_out_is_neither_drawn_of_by_other_sources_nor_shown_in_another_round():
    levels = torch.arange(1.0, 9.0)
    made = Made(levels.view(-1, 1, 1, 1).expand(-1, 1, 8, 8), None)
    module = _one_round(made, other=_Negatives(), rounds=3, held_out=0.25, images=100)
    held = _levels(module.held) & set(levels.tolist())
    assert len(module.held) == 3 * (2 + 1)  # of eight images, and of those that are made of the other six
    for entry in module.pool.entries:
        assert set(map(abs, _levels(entry.x))) == set(levels.tolist()) - held


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (X, r"make returns shape \[2, 1, 8, 8\] \(float32\), and must return Made\(images, labels or None\)"),
        ((X, None), r"make returns tuple, and must return Made"),
        (Made(X[..., :7], None), r"makes images of shape \[2, 1, 8, 7\] .* of shape \[n, 1, 8, 8\]"),
        (Made(X.flatten(1), None), r"makes images of shape \[2, 64\]"),
        (Made(X / 0, None), r"makes images with pixels that are not finite \(NaN or infinite\)$"),
        (Made(X.byte(), None), r"makes images of shape \[2, 1, 8, 8\] \(uint8\), .* floating-point"),
        (Made(X, torch.tensor([0, 3])), r"makes labels from 0 to 3, and these data's classes are 0 to 2"),
        (Made(X, torch.tensor([-1, 0])), r"makes labels from -1 to 0"),
        (Made(X, torch.zeros(2)), r"makes labels of shape \[2\] \(float32\), .* a whole number an image"),
        (Made(X, torch.tensor([0, 1, 2])), r"makes labels of shape \[3\] \(int64\), .* of shape \[2\]"),
        (Made(X, [0, 1]), r"makes labels of list"),
        (Made(X, torch.tensor([0, 1]), torch.ones(2, 3)), r"trusts its labels by shape \[2, 3\]"),
        (Made(X, torch.tensor([0, 1]), torch.tensor([-1.0, 1.0])), r"trusts its labels by -1 to 1, .* from 0 to 1 an"),
        (Made(X, torch.tensor([0, 1]), torch.tensor([torch.nan, 1.0])), r"trusts its labels by nan to nan, "),
        (Made(X + 255, None), r"makes pixels 128 times as bright as white; .* spec\.normalise"),
    ],
)
def test_a_source_that_makes_something_else_than_images_of_these_data_is_told(made, line):
    with pytest.raises(OneshotError, match=rf"^method\.source: {line}"):
        _one_round(made)


@pytest.mark.parametrize(
    "images",
    [X.double(), X.half(), X.bfloat16(), X.clone().requires_grad_()],
    ids=["double", "half", "bfloat16", "grad"],
)
def test_images_of_other_bits_or_with_a_gradient_are_as_good(images):
    assert torch.equal(_one_round(Made(images, None), rounds=2).pool.entries[0].x, images.detach().float())


class _SamePlace(_Given):
    """A source that makes all its images where it made the first."""

    def make(self, turn):
        self.made = Made(self.made.x.copy_(self.made.x + 1), None)
        return self.made


def test_images_stay_what_they_were_where_a_source_makes_its_next_in_their_place():
    module = _one_round(_SamePlace(Made(X.clone(), None)), rounds=2)
    assert [torch.equal(entry.x, X + 1 + number) for number, entry in enumerate(module.pool.entries)] == [True, True]


def test_of_several_sources_the_one_that_is_wrong_is_named():
    with pytest.raises(OneshotError, match=r"^method\.source\.other: makes images of shape \[2, 64\]"):
        _one_round(Made(X, None), other=_Given(Made(X.flatten(1), None)))


def test_images_that_nobody_can_name_are_told_with_their_source():
    server, nothing = server_of(), Objective({})
    loop = Loop(
        NoTeacher(server), {"own": _Given(Made(X, None))}, nothing, Pool(server, rounds=None), nothing, torch.optim.SGD
    )
    module = DistillModule(cnn2(SMALL, norm=False), ClientBank([]), loop, spec=SMALL, settings=SETTINGS)
    with (
        pytest.raises(OneshotError, match=r"^method\.source: makes images without labels, and there is no classifier"),
        trainer_of(module, CPU) as trainer,
    ):
        trainer.fit(module, train_dataloaders=range(1))


def test_each_student_that_votes_is_held_to_what_it_began_as_itself():
    """Before the first step their term is 0, however far they are from what they say together."""
    clients, held = [FixedLogits([0.0, 4.0, 3.0])], Objective({"sd": SelfDistillation(1.0, per_class=False)})
    server, student = server_of(clients), together([cnn2(SMALL, norm=norm).eval() for norm in (True, False)])
    pool, sgd = Pool(server, rounds=None), partial(torch.optim.SGD, lr=0.1)
    loop = Loop(LogitAverage(server), {}, Objective({}), pool, held, sgd)
    module = DistillModule(student, ClientBank(clients), loop, spec=SMALL, settings=SETTINGS)
    assert module._score("student", torch.rand(4, 1, 8, 8), torch.arange(4)).item() == pytest.approx(0.0, abs=1e-6)


def test_labels_of_fewer_bits_are_as_good():
    (entry,) = _one_round(Made(X, torch.tensor([2, 0], dtype=torch.int32))).pool.entries
    assert (entry.y.tolist(), entry.y.dtype) == ([2, 0], torch.int64)


class _PerClient(LogitAverage):
    def forward(self, votes):
        return votes.P.mean(dim=2)  # [m, b]


class _Index(LogitAverage):
    def forward(self, votes):
        return votes.P.mean(dim=0).argmax(dim=1)


class _RemembersAll(LogitAverage):
    def remember(self, votes):
        return votes.P


class _Forgets(LogitAverage):
    def recall(self, entry):
        return entry.answers[:, :2]


@pytest.mark.parametrize(
    ("ensemble", "line"),
    [
        (_PerClient, r"answers with a Tensor of shape \[1, 2\] .* must answer with logits of shape \[2, 3\]"),
        (_Index, r"answers with a Tensor of shape \[2\] \(torch\.int64\)"),
        (_RemembersAll, r"remember returns a tensor of shape \[1, 2, 3\], .* each of 2 images"),
        (_Forgets, r"answers with a Tensor of shape \[2, 2\]"),
    ],
)
def test_an_ensemble_that_answers_with_something_else_than_logits_is_told(ensemble, line):
    with pytest.raises(OneshotError, match=rf"^method\.ensemble: {line}"):
        _one_round(Made(X, None), ensemble)


class _Trims(LogitAverage):
    def forward(self, votes):
        votes.P[0] = 0
        return votes.P.mean(dim=0)


class _RemembersTrimmed(LogitAverage):
    def remember(self, votes):
        return votes.P[0].clamp_(max=1)


class _Darkens(LogitAverage):
    def forward(self, votes):
        votes.x.mul_(0.5)
        return votes.P.mean(dim=0)


@pytest.mark.parametrize("ensemble", [_Trims, _RemembersTrimmed, _Darkens])
def test_an_ensemble_that_writes_into_what_it_is_asked_with_is_told(ensemble):
    with pytest.raises(OneshotError, match=r"^method\.ensemble: the ensemble writes into the votes .*votes\.P\.clone"):
        _one_round(Made(X.clone(), None), ensemble)


class _Fades(LogitAverage):
    def refit(self, pool, batch_size, rng):
        for entry in pool.entries:
            entry.x.mul_(0.5)


def test_an_ensemble_that_writes_into_the_pool_is_told():
    with pytest.raises(OneshotError, match=r"^method\.ensemble: refit writes into the pool"):
        _one_round(Made(X.clone(), None), _Fades)


@pytest.mark.parametrize("asked", ["by a term", "by a source"])
def test_so_is_one_that_is_asked_while_images_are_made(asked):
    module = _module([FixedLogits([0.0, 4.0, 3.0])])
    module.ensemble = _PerClient(server_of([]))
    view = View(X, torch.tensor([0, 1]), student=None, bank=module.bank, ensemble=module.ensemble)
    with pytest.raises(OneshotError, match=r"^method\.ensemble: answers with a Tensor of shape \[1, 2\]"):
        module._taught(X, torch.tensor([0, 1])) if asked == "by a source" else view.teacher
