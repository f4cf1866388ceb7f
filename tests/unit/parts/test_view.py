"""What a loss term may look at is what it declared."""

from collections.abc import Iterable

import pytest
import torch
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.parts.view import View, ask, taught


class _Counting(nn.Sequential):
    """One batch normalisation layer and one linear layer that know how often they were asked."""

    def __init__(self) -> None:
        super().__init__(nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        self.asked = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.asked += 1
        return super().forward(x)


def _view(needs: Iterable[str] = (), **more) -> View:
    clients = [_Counting().eval() for _ in range(2)]
    student = more.pop("student", None) or _Counting().eval()
    bank = ClientBank(clients, mode="loop")
    return View(
        torch.randn(4, 3, 5, 5),
        torch.arange(4) % 2,
        student=student,
        bank=bank,
        ensemble=lambda votes: votes.P.sum(dim=0) + votes.y.view(-1, 1),
        needs=frozenset(needs),
        **more,
    )


@pytest.mark.parametrize("need", ["statistics", "features", "start"])
def test_what_nobody_declared_cannot_be_read(need):
    view = _view({"statistics", "features", "start"} - {need}, start=ClientBank([_Counting().eval()]))
    with pytest.raises(OneshotError, match=f"^a loss term reads `{need}` without declaring it; add it to .*`needs`$"):
        getattr(view, need)


def test_what_was_declared_is_there_for_every_client():
    view = _view({"statistics", "features", "start"}, start=ClientBank([_Counting().eval()]))
    assert [len(layers) for layers in view.statistics] == [1, 1]
    assert [feature.shape for feature in view.features] == [(4, 3), (4, 3)]
    assert view.start.shape == (4, 2)


def test_a_generators_objective_cannot_compare_with_how_the_student_began():
    with pytest.raises(OneshotError, match="only the student's objective"):
        _ = _view({"start"}).start


def test_clients_are_asked_once_and_only_when_somebody_looks():
    view = _view()
    clients = view._bank.models
    assert [client.asked for client in clients] == [0, 0]
    first, again = view.teacher, view.teacher
    assert first is again
    assert [client.asked for client in clients] == [1, 1]
    expected = sum(client(view.x) for client in clients) + view.y.view(-1, 1)
    torch.testing.assert_close(first, expected)


def test_a_teacher_that_is_known_already_asks_nobody():
    known = torch.ones(4, 2)
    view = _view(teacher=known)
    assert view.teacher is known
    assert [client.asked for client in view._bank.models] == [0, 0]


def test_the_students_answer_is_at_least_float32():
    student = nn.Sequential(nn.Flatten(), nn.Linear(75, 2))
    with torch.autocast("cpu", torch.bfloat16):
        answer = _view(student=student).student
    assert answer.dtype == torch.float32
    assert answer.shape == (4, 2)


class _Looking(nn.Module):
    """An ensemble that looks at features, as long as there are some."""

    def __init__(self, look, needs=()):
        super().__init__()
        self.look, self.needs = look, frozenset(needs)

    def forward(self, votes):
        self.look(votes.features)
        return votes.P.sum(dim=0)


@pytest.mark.parametrize("look", [list, len, bool, lambda held: held[0], lambda held: [each for each in held]])
def test_an_ensemble_that_looks_at_features_declares_it(look):
    line = "^an ensemble reads `features` without declaring it; add it to the ensemble's `needs`$"
    for needs in ((), {"features"}):  # what a loss term declares is none of the ensemble's
        view = _view(needs)
        view._ensemble = _Looking(look)
        with pytest.raises(OneshotError, match=line):
            _ = view.teacher
    asked = ask(view._bank, view.x, view.y, frozenset())
    with pytest.raises(OneshotError, match=line):
        taught(_Looking(look), asked)
    asked = ask(view._bank, view.x, view.y, frozenset({"features"}))
    assert taught(_Looking(look, {"features"}), asked).shape == (4, 2)


@pytest.mark.parametrize("need", [None, "x", "y", "trust", "teacher", "student", "start", "features", "statistics"])
def test_a_view_tells_what_somebody_has_written_into(need):
    view = _view({"statistics", "features", "start"}, start=ClientBank([_Counting().eval()]))
    _ = view.teacher, view.student, view.start, view.features, view.statistics
    assert view.written is None
    if need is None:
        return
    held = getattr(view, need)
    while not isinstance(held, torch.Tensor):
        held = held[-1]
    with torch.no_grad():
        held.add_(1)
    assert view.written == ("outputs" if need in ("features", "statistics") else need)
