"""Objectives weigh terms."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.parts.objective import Objective
from oneshot_fl.parts.terms import CrossEntropy, Distillation, LabelCrossEntropy
from oneshot_fl.parts.view import View

LOG3 = math.log(3.0)
KL_AT_1 = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)


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


def test_a_term_that_trains_nothing_beside_others_is_told_once_by_its_key(capsys):
    class Own:
        weight = 1.0

        def __call__(self, view):
            return (view.student.argmax(dim=1) != view.y).float().mean()

    objective = Objective({"own": Own(), "ce": LabelCrossEntropy(1.0)}, "method.student")
    with torch.no_grad():
        objective(_view_of())
    assert capsys.readouterr().err == ""
    for _ in range(2):
        objective(_view_of())[0].backward()
    line = "oneshot_fl: method.student.own: the loss term has no gradient, so that nothing is trained by it; "
    assert capsys.readouterr().err.count(line) == 1


def test_an_objective_without_terms_is_zero_and_needs_nothing():
    total, values = Objective({})(_View())
    assert (total.item(), values, Objective({}).needs) == (0.0, {}, frozenset())


def test_a_term_that_names_no_needs_has_none():
    class Plain:
        weight = 1.0

    assert Objective({"own": Plain(), "kl": Distillation(1.0, temperature=1.0)}).needs == Distillation.needs
