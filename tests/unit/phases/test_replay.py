"""Which steps are captured, and that replays are given, and give, what the steps would."""

from collections import namedtuple
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.parts.ensembles import LogitAverage
from oneshot_fl.phases import replay
from oneshot_fl.phases.replay import FEWEST, captured, captures, copied, repeated, to_capture
from oneshot_fl.phases.trainer import TrainerSettings, trainer_of
from tests.parts import server_of

SGD = torch.optim.SGD


class OwnPart:
    """A part of a user's own."""


class OwnOptimizer(torch.optim.SGD):
    """An optimiser of a user's own."""


def _of(kind: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    return kind([nn.Parameter(torch.zeros(1))], lr=0.1)


def test_only_steps_of_known_optimisers_and_parts_are_captured():
    parts = [LogitAverage(server_of([])), nn.ReLU()]
    assert captures(_of(SGD), parts)
    assert captures(_of(torch.optim.Adam), parts)
    assert not captures(_of(torch.optim.Rprop), [OwnPart()])
    assert not captures(_of(OwnOptimizer), parts)
    assert not captures(_of(torch.optim.LBFGS), parts)  # it counts in Python, and cannot be captured
    assert not captures(_of(SGD), [*parts, OwnPart()])


@pytest.mark.parametrize(
    ("replays", "fused", "rate_moves", "captured"),
    [
        (True, True, True, True),
        (True, False, True, False),  # it takes a number into the graph
        (True, False, False, True),
        (False, True, False, False),
    ],
)
def test_a_rate_that_moves_is_followed_by_a_fused_optimiser_alone(replays, fused, rate_moves, captured):
    own = SGD([nn.Parameter(torch.zeros(1))], lr=0.1, fused=fused)
    module, lightnings = SimpleNamespace(replays=replays), SimpleNamespace(optimizer=own)
    assert to_capture(module, lightnings, [nn.ReLU()], rate_moves=rate_moves) is (own if captured else None)


def test_without_an_optimiser_nothing_is_fetched_ahead():
    seen = []

    def given():
        for number in range(3):
            seen.append(f"given {number}")
            yield number

    list(repeated(lambda number: seen.append(f"step {number}"), given()))
    assert seen == ["given 0", "step 0", "given 1", "step 1", "given 2", "step 2"]


def _by_steps(step, static, captures_made):
    captures_made.append(1)
    return partial(step, static)


@pytest.fixture
def captures_made(monkeypatch) -> list[int]:
    """Steps that were captured, by a stand-in that runs the step on the static tensors."""
    made: list[int] = []
    monkeypatch.setattr(replay, "captured", partial(_by_steps, captures_made=made))
    return made


def test_replays_see_what_they_are_given_and_results_stay(captures_made):
    total = torch.zeros(2)

    def step(batch):
        total.add_(batch[0].sum())
        return {"total": total, "twice": [batch[0] * 2]}  # the same tensor each time, as a graph's

    given = [(torch.full((2,), float(number)),) for number in range(6)]
    given.insert(3, (torch.full((3,), 10.0),))  # of another shape
    results = list(repeated(step, given, optimizer=_of(SGD)))
    assert len(captures_made) == 1
    assert [float(each["total"][0]) for each in results[1:3]] == [2 * 1.0, 2 * (1.0 + 2.0)]
    assert [each["twice"][0].tolist() for each in results[1:3]] == [[2.0, 2.0], [4.0, 4.0]]
    assert results[3]["twice"][0].tolist() == [20.0] * 3
    assert float(total[0]) == 2 * (0 + 1 + 2 + 3 + 4 + 5) + 30


def test_few_steps_are_not_captured(captures_made):
    given = [torch.zeros(1)] * (FEWEST - 1)
    assert len(list(repeated(lambda x: x, given, optimizer=_of(SGD)))) == FEWEST - 1
    assert not captures_made


def test_an_optimiser_counts_its_steps_on_the_device_before_there_are_enough_for_a_graph():
    adam, plain = _of(torch.optim.Adam), _of(torch.optim.Adam)
    assert to_capture(SimpleNamespace(replays=True), SimpleNamespace(optimizer=adam), []) is adam
    assert to_capture(SimpleNamespace(replays=False), SimpleNamespace(optimizer=plain), []) is None
    assert [each.param_groups[0]["capturable"] for each in (adam, plain)] == [True, False]


def test_copies_keep_their_kind_and_have_memory_of_their_own():
    pair = namedtuple("pair", "x y")
    x = torch.ones(2)
    found = copied(pair(x, {"a": [x, None]}))
    x.zero_()
    assert isinstance(found, pair)
    assert found.x.tolist() == [1, 1]
    assert found.y["a"][0].tolist() == [1, 1]
    assert found.y["a"][1] is None


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("operation not permitted when stream is capturing", OneshotError, r"trainer\.cuda_graphs=false"),
        ("CUDA out of memory", RuntimeError, "out of memory"),
    ],
)
def test_what_cannot_be_captured_is_told(monkeypatch, said, kind, told):
    @contextmanager
    def graph(_graph, **_options):
        yield

    def step(_):
        raise RuntimeError(said)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    with pytest.raises(kind, match=told):
        captured(step, None)


@pytest.mark.parametrize("graphs", [True, False])
def test_on_a_cpu_nothing_is_replayed(graphs):
    class Module(LightningModule):
        automatic_optimization = False
        replays = None

        def training_step(self, batch, batch_idx):
            """Nothing."""

        def configure_optimizers(self):
            return _of(SGD)

    module = Module()
    settings = TrainerSettings("cpu", "32-true", channels_last=True, cuda_graphs=graphs)
    with trainer_of(module, settings) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    assert module.replays is (False if graphs else None)
