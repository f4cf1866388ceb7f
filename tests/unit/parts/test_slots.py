"""Objectives weigh terms, and a method's recipes become a loop."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.co_boosting import Perturbation
from oneshot_fl.methods.fedhydra import StratifiedAggregation
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.parts.decoders import DecoderSource
from oneshot_fl.parts.ensembles import LogitAverage, NoTeacher
from oneshot_fl.parts.inits import AsClientsBegan, Average, AverageWhereAlike, Fresh
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.slots import Method, Objective, WarmUpRecipe
from oneshot_fl.parts.sources import ProxySource
from oneshot_fl.parts.terms import CrossEntropy, Distillation, LabelCrossEntropy
from oneshot_fl.parts.view import View
from tests.parts import recipe_of, server_of

LOG3 = math.log(3.0)
KL_AT_1 = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
SGD = partial(recipe_of, torch.optim.SGD)
STRATIFIED = recipe_of(StratifiedAggregation, scale=1.0, in_model=True, space="logits")
HARD = recipe_of(Perturbation, epsilon=0.1, direction="sign")


class _View:
    """Teacher and student see one image of class 0: softmax(teacher) = [3/4, 1/4], softmax(student) = [1/2, 1/2]."""

    x = torch.zeros(1)
    y = torch.tensor([0])
    teacher = torch.tensor([[LOG3, 0.0]])
    student = torch.tensor([[0.0, 0.0]])
    written = None


def test_eqs_16_and_19_weigh_named_terms():
    objective = Objective({"kl": Distillation(2.0, temperature=1.0), "ce": CrossEntropy(0.5)})
    total, values = objective(_View())
    assert_close(total, torch.tensor(2 * KL_AT_1 + 0.5 * math.log(4 / 3)))
    assert set(values) == {"kl", "ce"}
    assert_close(values["kl"], torch.tensor(KL_AT_1))


def test_a_term_without_weight_is_neither_computed_nor_asks_for_anything():
    class Explodes:
        weight = 0.0
        needs = frozenset({"statistics"})

        def __call__(self, view):
            raise AssertionError("computed")

    objective = Objective({"off": Explodes(), "ce": CrossEntropy(1.0)})
    assert objective.needs == CrossEntropy.needs
    assert set(objective(_View())[1]) == {"ce"}


@pytest.mark.parametrize(
    ("value", "returned"),
    [
        (torch.ones(4), r"Tensor of shape \[4\] \(torch\.float32\)"),  # .mean() was forgotten
        (torch.ones(1), r"Tensor of shape \[1\]"),
        (torch.tensor(3), r"Tensor of shape \[\] \(torch\.int64\)"),
        (0.5, "float"),
        (None, "NoneType"),
    ],
)
def test_a_term_that_returns_no_scalar_is_refused_by_its_key(value, returned):
    class Own:
        weight = 1.0
        needs = frozenset()

        def __call__(self, view):
            return value

    objective = Objective({"ce": CrossEntropy(1.0), "own": Own()}, "method.student")
    with pytest.raises(OneshotError, match=rf"^method\.student\.own: the loss term returns a {returned}.*\.mean\(\)$"):
        objective(_View())


def test_a_term_is_a_scalar_also_where_it_is_computed_for_many_at_once():
    class Size:
        weight = 2.0
        needs = frozenset()

        def __call__(self, view):
            return view.x.mean()

    totals = torch.func.vmap(lambda x: Objective({"size": Size()})(SimpleNamespace(x=x, written=None))[0])(torch.eye(2))
    assert totals.tolist() == [1.0, 1.0]


def _view_of(**more):
    student, clients = (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)) for _ in range(2))
    images, labels, bank = torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.long), ClientBank([clients])
    return View(images, labels, student=student, bank=bank, ensemble=lambda votes: votes.P.sum(dim=0), **more)


@pytest.mark.parametrize("known", [{}, {"teacher": torch.zeros(2, 3)}], ids=["asked", "known"])
@pytest.mark.parametrize(
    ("written", "write"),
    [
        ("x", lambda view: view.x.mul_(0.5).mean()),
        ("y", lambda view: view.student.mean() * view.y.add_(1).sum()),
        ("teacher", lambda view: view.teacher.mul_(2).mean()),
        ("student", lambda view: view.student.mul_(2).mean()),
    ],
)
def test_a_term_that_writes_into_what_others_look_at_is_refused_by_its_key(known, written, write):
    class Own:
        weight = 1.0
        needs = frozenset({"teacher"})

        def __call__(self, view):
            return write(view)

    objective = Objective({"own": Own(), "ce": CrossEntropy(1.0)}, "method.student")
    line = rf"^method\.student\.own: the loss term writes into view\.{written}, .* on a copy \(\.clone\(\)\)$"
    with pytest.raises(OneshotError, match=line):
        objective(_view_of(**known))


def test_a_term_may_do_in_a_copy_whatever_it_likes_also_where_many_are_computed_at_once():
    class Own:
        weight = 1.0
        needs = frozenset({"teacher"})

        def __call__(self, view):
            return view.x.clone().mul_(2).mean() + 0 * view.teacher.sum()

    bank = ClientBank([nn.Sequential(nn.Flatten(), nn.Linear(64, 3))])

    def total(x):
        labels = torch.zeros(1, dtype=torch.long)
        view = View(x, labels, student=None, bank=bank, ensemble=lambda votes: votes.P.sum(dim=0))
        return Objective({"own": Own()})(view)[0]

    assert_close(torch.func.vmap(total)(torch.ones(3, 1, 1, 8, 8)), torch.full((3,), 2.0))
    assert_close(torch.func.grad(total)(torch.ones(1, 1, 8, 8)), torch.full((1, 1, 8, 8), 2 / 64))


def test_an_objective_without_terms_is_zero_and_needs_nothing():
    total, values = Objective({})(_View())
    assert (total.item(), values, Objective({}).needs) == (0.0, {}, frozenset())


def _method(**slots) -> Method:
    """FedDF's bones: proxy images, the mean of the clients' logits, one term."""
    settings = {
        "init": recipe_of(Fresh),
        "ensemble": recipe_of(LogitAverage),
        "sources": {"images": recipe_of(ProxySource)},
        "pool": recipe_of(Pool, rounds=1, refill=False),
        "student": {"kl": recipe_of(Distillation, weight=1.0, temperature=1.0)},
        "optimizer": SGD(lr=0.1),
    } | slots
    return Method("bones", **settings)


def _server():
    return server_of([nn.Linear(1, 1)], proxy=torch.zeros(2, 1, 8, 8, dtype=torch.uint8), guidance=torch.ones(3, 1))


def test_a_method_needs_what_any_of_its_slots_needs():
    assert Method("m", recipe_of(Fresh)).needs == frozenset()
    assert _method().needs == {"classifiers", "proxy"}
    assert _method(ensemble=STRATIFIED).needs == {"classifiers", "proxy", "guidance", "labels"}
    assert _method(ensemble=None, init=recipe_of(AsClientsBegan)).needs == {"proxy", "clients_start"}
    assert _method(ensemble=None).needs == {"proxy"}
    assert _method(ensemble=None, perturb=HARD).needs == {"proxy", "classifiers"}


def test_a_method_also_uses_classifiers_that_it_begins_at_or_is_warmed_up_by():
    decoders = {"images": recipe_of(DecoderSource, samples=6, split="categorical", bound=None)}
    warm_up = WarmUpRecipe(1, {}, SGD(lr=0.1))
    plain, begins = (Method("m", recipe_of(init), sources=decoders) for init in (Fresh, AverageWhereAlike))
    warmed = Method("m", recipe_of(Fresh), sources=decoders, warm_up=warm_up)
    assert plain.needs == begins.needs == {"decoders"}
    assert [each.uses for each in (plain, begins, warmed)] == [
        {"decoders"}, {"classifiers", "decoders"}, {"classifiers", "decoders"},
    ]  # fmt: skip


def test_a_method_without_a_source_has_no_loop():
    assert Method("average", recipe_of(Average)).loop(_server(), warm_up=True) is None


def test_a_methods_recipes_become_the_parts_of_its_loop():
    slots = {"objective": {"ce": recipe_of(CrossEntropy, weight=2.0)}, "schedule": "cosine"}
    loop = _method(ensemble=STRATIFIED, perturb=HARD, **slots).loop(_server(), warm_up=False)
    assert isinstance(loop.ensemble, StratifiedAggregation)
    assert isinstance(loop.perturb, Perturbation)
    assert [type(source) for source in loop.sources.values()] == [ProxySource]
    assert (loop.pool.refill, loop.schedule, loop.warm_up) == (False, "cosine", None)
    assert (loop.objective.terms["ce"].weight, set(loop.student.terms)) == (2.0, {"kl"})
    weight = nn.Parameter(torch.ones(1))
    assert loop.optimizer([weight]).param_groups[0]["lr"] == 0.1


def test_two_servers_share_no_part():
    first, second = (_method().loop(_server(), warm_up=False) for _ in range(2))
    assert first.pool is not second.pool
    assert first.ensemble is not second.ensemble
    assert first.sources["images"] is not second.sources["images"]


def test_without_an_ensemble_nobody_teaches():
    assert isinstance(_method(ensemble=None).loop(_server(), warm_up=False).ensemble, NoTeacher)


def test_a_warm_up_is_made_where_it_is_wanted_and_there_is_one():
    terms = {"ce": recipe_of(LabelCrossEntropy, weight=0.5)}
    method = _method(warm_up=WarmUpRecipe(7, terms, SGD(lr=0.3)))
    assert method.loop(_server(), warm_up=False).warm_up is None
    assert _method().loop(_server(), warm_up=True).warm_up is None
    made = method.loop(_server(), warm_up=True).warm_up
    assert (made.passes, made.objective.terms["ce"].weight) == (7, 0.5)
    assert made.optimizer([nn.Parameter(torch.ones(1))]).param_groups[0]["lr"] == 0.3


def test_a_term_that_names_no_needs_has_none():
    class Plain:
        weight = 1.0

    assert Objective({"own": Plain(), "kl": Distillation(1.0, temperature=1.0)}).needs == Distillation.needs
