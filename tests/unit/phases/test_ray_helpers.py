import os
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from oneshot_fl import ledger
from oneshot_fl.phases.ray_helpers import on_ray
from oneshot_fl.phases.side_by_side import make_all
from oneshot_fl.tracking.progress import Progress


class _FakeRay:
    """A cluster with room for one task, which works through it at once; other tasks stay in the queue."""

    def __init__(self):
        self.asked, self.queue, self.cancelled, self.fetched = {}, deque(), [], 0

    def is_initialized(self):
        return True

    def get_runtime_context(self):
        return SimpleNamespace(get_assigned_resources=lambda: {"CPU": 2.0, "GPU": 0.5})

    def put(self, thing):
        return thing

    def get(self, thing):
        self.fetched += 1
        return thing

    def remote(self, **asked):
        self.asked = asked
        return lambda function: SimpleNamespace(remote=lambda *given: self._submit(function, given))

    def _submit(self, function, given):
        if not self.queue:
            function(*given)
        self.queue.append(given)
        return len(self.queue)

    def cancel(self, task):
        self.cancelled.append(task)


@pytest.fixture
def cluster(monkeypatch):
    ray = _FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    return ray


@pytest.fixture
def wanted(wanting):
    return wanting(6)


def _all(wanted, context):
    task = Progress(Console(force_terminal=False)).task("training", len(wanted), "epochs")
    artifacts = make_all(wanted, [1] * len(wanted), context=replace(context, workers=3), task=task)
    task.finish()
    return artifacts


def test_tasks_begin_elsewhere_than_the_job_and_nothing_is_made_twice(cluster, context, wanted, made, capsys):
    context.store.get_or_make("clients", {"k": 1}, wanted[1].make)
    artifacts = _all(wanted, context)
    assert made == [1, 2, 3, 4, 5, 0]  # of the five that are missing, the job begins at 0 and two tasks at 2 and 4
    assert [int(artifact.tensors["k"]) for artifact in artifacts] == [0, 1, 2, 3, 4, 5]
    assert [artifact.from_store for artifact in artifacts] == [False, True, False, False, False, False]
    assert "5 of 6 epochs in" in capsys.readouterr().out
    assert cluster.fetched == 5  # what is there, or being made, does not travel


def test_a_task_has_what_the_job_has_and_ends_with_it(cluster, context, wanted):
    _all(wanted, context)
    assert cluster.asked == {"num_cpus": 2.0, "num_gpus": 0.5, "max_retries": 0}
    assert cluster.cancelled == [1, 2]


def test_what_a_task_drew_beside_others_is_not_known(cluster, context, wanted, monkeypatch):
    counter = SimpleNamespace(read=lambda: 1.0, since=lambda before: before and 1.0 - before)
    monkeypatch.setattr(ledger, "CPU_ENERGY", counter)
    assert [one.cost.cpu_joules for one in _all(wanted, context)] == [None] * 6  # the first task makes all


def test_the_store_is_named_in_full_as_tasks_work_in_other_folders(cluster, context, wanted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = replace(context.store, root=Path(os.path.relpath(context.store.root)))
    _all(wanted, replace(context, store=here))
    assert cluster.queue[0][0].root.is_absolute()


def test_without_ray_there_is_no_cluster(monkeypatch):
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    assert not on_ray()
