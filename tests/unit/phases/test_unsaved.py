"""What a part keeps where no checkpoint looks: every change is seen, and nothing else is."""

import random
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from oneshot_fl.phases.unsaved import changed, traces
from tests.parts import Momentum


class Part:
    """A part of a user's own that is no module."""

    needs = frozenset()


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0


class Whole(nn.Module):
    """One whose weights and buffers are saved, and that has another module inside."""

    def __init__(self):
        super().__init__()
        self.linear, self.inner = nn.Linear(2, 2), Inner()
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("lost", torch.zeros(2), persistent=False)
        self.same = [self.linear.weight, self.kept]


class Slotted:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


@dataclass
class Beside:
    """Another object, which a part holds."""

    numbers: dict


def _changed(part, change, lasting=(), optimizers=None) -> list[str]:
    def traced():
        return traces({"term": part}, lasting, optimizers or {})

    before = traced()
    assert changed(before, traced()) == []
    change(part)
    return changed(before, traced())


def _holding(value) -> Part:
    part = Part()
    part._held = value
    return part


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (np.zeros(3), lambda held: held.__setitem__(1, 2.0)),
        (np.array([[1], 2], dtype=object), lambda held: held[0].append(3)),
        (deque([1, 2], maxlen=2), lambda held: held.append(2)),
        ({"a": 1.0}, lambda held: held.update(a=2.0)),
        ({"a": [{"b": (1, [2])}]}, lambda held: held["a"][0]["b"][1].append(3)),
        ({1, 2}, lambda held: held.__ixor__({2, 3})),
        (bytearray(b"ab"), lambda held: held.__setitem__(0, 0)),
        (torch.zeros(2), lambda held: held.add_(1)),
        (torch.zeros(2), lambda held: held.data.add_(1)),
        (torch.zeros(2, dtype=torch.bfloat16), lambda held: held.data.add_(1)),
        (torch.zeros(2), lambda held: held.numpy().__setitem__(0, 1)),
        ([torch.zeros(2)], lambda held: held[0].add_(1)),
        (torch.Generator(), lambda held: torch.rand(1, generator=held)),
        (np.random.default_rng(0), lambda held: held.random()),
        (random.Random(0), lambda held: held.random()),
        (Slotted(), lambda held: setattr(held, "count", 1)),
        (Beside({"a": np.float32(1)}), lambda held: held.numbers.update(a=np.float32(2))),
        ([nn.Linear(2, 2)], lambda held: nn.init.zeros_(held[0].weight)),
        ([Whole()], lambda held: setattr(held[0].inner, "calls", 1)),
        (torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0), lambda held: held.param_groups[0].update(lr=2.0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_changes_inside_is_seen(value, change):
    assert _changed(_holding(value), lambda part: change(part._held)) == ["term (Part._held)"]


class Sharing(Part):
    """A part that keeps what it saw in its class."""

    seen: list[int] = []  # the slip that is looked for


class SharingModule(nn.Module):
    seen: list[int] = []


@pytest.mark.parametrize("kind", [Sharing, SharingModule])
def test_what_lies_in_a_class_is_seen(kind):
    told = _changed(kind(), lambda part: part.seen.append(1))
    assert told == [f"term ({kind.__name__}.seen, in its class)"]
    kind.seen.clear()


def test_what_lies_in_the_class_of_a_module_inside_is_seen():
    told = _changed(nn.Sequential(SharingModule()), lambda part: part[0].seen.append(1))
    assert told == ["term (Sequential.0.seen, in its class)"]
    SharingModule.seen.clear()


@pytest.mark.parametrize(
    "made",
    [lambda: 1, lambda: 1.5, lambda: "a", lambda: np.float32(1), lambda: torch.zeros(2), lambda: [1], lambda: None],
)
def test_an_attribute_that_comes_goes_or_is_replaced_is_seen(made):
    assert _changed(Part(), lambda part: setattr(part, "new", made())) == ["term (Part.new)"]
    assert _changed(_holding(made()), lambda part: delattr(part, "_held")) == ["term (Part._held)"]
    assert _changed(_holding(made()), lambda part: setattr(part, "_held", 7)) == ["term (Part._held)"]


@pytest.mark.parametrize("tensor", [torch.eye(2).to_sparse(), torch.zeros(2, device="meta")], ids=["sparse", "meta"])
def test_of_a_tensor_whose_numbers_nobody_can_read_none_can_tell(tensor):
    part = _holding(tensor)
    assert changed(*(traces({"term": part}, [], {}) for _ in range(2))) == ["term (Part._held)"]


def test_a_tensor_that_is_made_anew_every_time_never_takes_the_place_of_the_first():
    part = _holding(torch.zeros(2))
    before = traces({"term": part}, [], {})
    for _ in range(8):  # a freed tensor's address is used again
        part._held = part._held + 1
        assert changed(before, traces({"term": part}, [], {})) == ["term (Part._held)"]


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("nan")],
        threading.Lock(),
        print,
        lambda: 0,
        Part,
        np,
        slice(1),
        np.zeros(0),
        range(3),
        {}.keys(),
    ],
)
def test_what_stays_as_it_is_is_no_change(value):
    assert _changed(_holding(value), lambda part: None) == []


def test_what_holds_itself_and_what_lies_very_deep_come_to_an_end():
    ring = [1]
    ring.append(ring)
    assert _changed(_holding(ring), lambda part: part._held.append(2)) == ["term (Part._held)"]
    chain = None
    for _ in range(10_000):
        chain = (chain,)
    deep = _holding(chain)
    assert changed(traces({"term": deep}, [], {}), traces({"term": deep}, [], {})) == ["term (Part._held)"]


def test_nobody_can_tell_how_far_an_iterator_is():
    part = _holding(iter([1, 2]))
    assert changed(traces({"term": part}, [], {}), traces({"term": part}, [], {})) == ["term (Part._held)"]
    assert next(part._held) == 1


@torch.no_grad()
def test_of_a_module_what_is_saved_is_no_matter_and_all_else_is():
    whole = Whole()

    def train(part):
        part.train(not part.training)
        part.linear.weight.add_(1)
        part.kept += 1

    assert _changed(whole, train, [whole]) == []
    assert _changed(whole, lambda part: part.lost.add_(1), [whole]) == ["term (Whole.lost)"]
    assert _changed(whole, lambda part: setattr(part.inner, "calls", 1), [whole]) == ["term (Whole.inner.calls)"]
    assert _changed(whole, lambda part: setattr(part.dropout, "p", 0.2), [whole]) == ["term (Whole.dropout.p)"]
    assert _changed(whole, lambda part: part.same.pop(), [whole]) == ["term (Whole.same)"]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_a_weight_that_torch_computes_from_saved_ones_is_no_change(norm):
    part = nn.Sequential(norm(nn.Linear(2, 2)))
    assert _changed(part, lambda part: part(torch.zeros(1, 2)), [part]) == []


class Kept(torch.optim.Adam):
    """A user's own that keeps all in `state`."""


@pytest.mark.parametrize(
    ("made", "names"),
    [(Momentum, ["optimiser of student (Momentum.m)"]), (Kept, []), (torch.optim.Adam, []), (torch.optim.RMSprop, [])],
)
@pytest.mark.parametrize("options", [{}, {"fused": True}])
def test_of_an_optimiser_counts_what_lies_beside_its_state(made, names, options):
    layer = nn.Linear(2, 2)
    optimizer = made(layer.parameters(), lr=0.1, **(options if issubclass(made, torch.optim.Adam) else {}))

    def step(_):
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    assert _changed(None, step, [layer], {"student": optimizer}) == names
