import pickle
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from oneshot_fl import ledger
from oneshot_fl.artifacts import Artifact
from oneshot_fl.errors import OneshotError
from oneshot_fl.phases import side_by_side
from oneshot_fl.phases.keyed import OtherCodeError
from oneshot_fl.phases.side_by_side import make_all
from oneshot_fl.store import Wanted
from oneshot_fl.tracking.progress import Progress
from tests.parts import CPU


class _HereInstead:
    """Stands in for joblib's workers."""

    def __init__(self, **options):
        self.options = options

    def __call__(self, jobs):
        assert self.options["n_jobs"] == 2
        return [function(*given, **named) for function, given, named in jobs]


@pytest.fixture
def wanted(wanting):
    return wanting(3)


@pytest.fixture
def task(capsys):
    return Progress(Console(force_terminal=False)).task("training", 6, "epochs")


@pytest.mark.parametrize("workers", [1, 2])
def test_all_are_made_once_in_order_and_counted(context, wanted, made, task, capsys, monkeypatch, workers):
    monkeypatch.setattr(side_by_side, "Parallel", _HereInstead)
    context = replace(context, workers=workers)
    context.store.get_or_make("clients", {"k": 1}, wanted[1].make)
    artifacts = make_all(wanted, [1, 2, 3], context=context, task=task)
    assert made == [1, 0, 2]
    assert [int(artifact.tensors["k"]) for artifact in artifacts] == [0, 1, 2]
    assert task.completed == 6
    task.finish()
    assert "4 of 6 epochs in" in capsys.readouterr().out


def test_no_worker_starts_for_a_single_thing_to_make(context, wanted, made, task, monkeypatch):
    monkeypatch.setattr(side_by_side, "Parallel", None)
    make_all(wanted[:1], [6], context=replace(context, workers=2), task=task)
    assert made == [0]


@pytest.mark.parametrize("stale", [1, 2])
@pytest.mark.parametrize(
    ("error", "final"), [(OtherCodeError, OtherCodeError), (BrokenProcessPool, OneshotError)], ids=["edited", "lost"]
)
def test_workers_that_know_other_code_are_replaced_once(context, wanted, made, task, monkeypatch, stale, error, final):
    class OfAnEarlierRun(_HereInstead):
        runs = 0

        def __call__(self, jobs):
            self.runs += 1
            if self.runs <= stale:
                raise error("edited")
            return super().__call__(jobs)

    ended = []
    monkeypatch.setattr(side_by_side, "Parallel", OfAnEarlierRun)
    monkeypatch.setattr(
        side_by_side, "get_reusable_executor", lambda: SimpleNamespace(shutdown=lambda **how: ended.append(how))
    )
    line = "^edited$" if final is OtherCodeError else "^workers=2: one of them cannot load"
    with pytest.raises(final, match=line) if stale == 2 else nullcontext():
        make_all(wanted, [2] * 3, context=replace(context, workers=2), task=task)
    assert ended == [{"wait": True}]
    assert made == ([] if stale == 2 else [0, 1, 2])


def test_what_workers_do_counts_as_they_do_it_beside_what_is_in_the_store(context, wanted, task, monkeypatch):
    class Working(_HereInstead):
        def __call__(self, jobs):
            its_own = pickle.loads(pickle.dumps(task))
            its_own.advance("client 2 of 3")
            task.look()
            told.append(task.completed)
            return super().__call__(jobs)

    told = []
    monkeypatch.setattr(side_by_side, "Parallel", Working)
    context.store.get_or_make("clients", {"k": 0}, wanted[0].make)
    make_all(wanted, [2] * 3, context=replace(context, workers=2), task=task)
    assert told == [2 + 1]
    assert task.completed == 6


def _threads(_):
    return Artifact({}, {"threads": torch.get_num_threads()})


@pytest.fixture
def five_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("stored", [0, 2])
@pytest.mark.usefixtures("five_threads")
def test_workers_have_an_equal_share_of_the_threads_whatever_is_stored(context, task, monkeypatch, stored):
    """Also where a single one is left, which no worker makes: results depend on the threads by rounding."""
    monkeypatch.setattr(side_by_side, "Parallel", _HereInstead)
    wanted = [Wanted("clients", {"k": k}, _threads) for k in range(3)]
    for k in range(stored):
        context.store.get_or_make("clients", {"k": k}, lambda _: Artifact({}, {"threads": "of another run"}))
    made = make_all(wanted, [2] * 3, context=replace(context, workers=2), task=task)
    assert [artifact.facts["threads"] for artifact in made[stored:]] == [2] * (3 - stored)
    assert torch.get_num_threads() == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_computed_before_a_trainer_has_the_precision_of_its_products(context, task, monkeypatch, workers):
    def make(_):
        return Artifact({}, {"precision": torch.get_float32_matmul_precision()})

    monkeypatch.setattr(side_by_side, "Parallel", _HereInstead)
    wanted = [Wanted("clients", {"k": k}, make) for k in range(2)]
    for precision in ("medium", "highest"):
        store = replace(context.store, root=context.store.root / precision)
        trainer = replace(CPU, matmul_precision=precision)
        its_own = replace(context, store=store, trainer=trainer, workers=workers)
        found = make_all(wanted, [3] * 2, context=its_own, task=task)
        assert [one.facts["precision"] for one in found] == [precision] * 2


@pytest.mark.parametrize(("workers", "joules"), [(1, 0.0), (2, None)])
def test_what_each_of_several_workers_drew_is_not_known(context, wanted, task, monkeypatch, workers, joules):
    monkeypatch.setattr(side_by_side, "Parallel", _HereInstead)
    counter = SimpleNamespace(read=lambda: 1.0, since=lambda before: before and 1.0 - before)
    monkeypatch.setattr(ledger, "CPU_ENERGY", counter)
    artifacts = make_all(wanted, [2] * 3, context=replace(context, workers=workers), task=task)
    assert [(one.cost.cpu_joules, one.cost.gpu_joules) for one in artifacts] == [(joules, 0.0)] * 3
