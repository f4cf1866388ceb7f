"""The loop of every launcher, with an engine whose jobs end as they are told."""

import json
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from oneshot_fl.launchers.engine import Engine, Outcome, Task
from oneshot_fl.launchers.loop import Talk, run_all
from oneshot_fl.sweeps.manifest import Manifest
from oneshot_fl.tracking.progress import HEARTBEAT


class Scripted(Engine):
    """Jobs end at once: with a value, or by the death of their process as often as they are told."""

    name, elsewhere, pause = "scripted", False, 0.0

    def __init__(self, at_once=2, deaths=None):
        self.at_once, self.deaths = at_once, dict(deaths or {})
        self.batches, self.stopped = [], False

    def submit(self, tasks):
        self.batches.append([task.number for task in tasks])
        return [self._end(task) for task in tasks]

    def _end(self, task):
        future = Future()
        if self.deaths.get(task.number, 0) > 0:
            self.deaths[task.number] -= 1
            future.set_exception(RuntimeError("killed"))
        else:
            future.set_result(task.call())
        return future

    def stop(self):
        self.stopped = True


def _task(number, call=None):
    return Task(number, (f"seed={number}",), Path("nowhere"), call or (lambda: Outcome("done", number / 10)), ".")


@pytest.fixture
def talk(tmp_path):
    said = []
    talk = Talk(tmp_path, Manifest({number: (f"seed={number}",) for number in range(5)}), say=said.append)
    return talk, said


def test_the_engine_is_kept_full_and_jobs_are_made_when_there_is_room(talk):
    engine, made = Scripted(), []

    def tasks():
        for number in range(5):
            made.append((number, len(engine.batches)))
            yield _task(number)

    outcomes = run_all(engine, tasks(), talk[0], died=pytest.fail)
    assert [outcomes[number].value for number in range(5)] == [0, 0.1, 0.2, 0.3, 0.4]
    assert max(map(len, engine.batches)) == 2
    assert made[-1] == (4, 2)
    assert not engine.stopped
    assert talk[1][0] == "job 0 of 5 done: seed=0; server accuracy 0.00%"


def test_a_job_that_was_done_before_is_told_with_what_may_surprise(talk):
    talk[0].done_before(3, Outcome("done"), arithmetic="")
    talk[0].done_before(3, Outcome("done"), arithmetic="cuda.32-true")
    talk[0].done_before(3, Outcome("failed", error="distill.held_out: too small"), arithmetic="")
    assert talk[1] == [
        "job 3 of 5 was done before: seed=3",
        "job 3 of 5 was done before on cuda.32-true: seed=3",
        "job 3 of 5 was done before: seed=3; distill.held_out: too small",
    ]
    assert talk[0].done == {3}


def test_a_job_whose_process_dies_is_taken_up_once(talk):
    engine = Scripted(deaths={1: 1})
    outcomes = run_all(engine, map(_task, range(3)), talk[0], died=pytest.fail)
    assert outcomes[1].status == "done"
    assert [number for batch in engine.batches for number in batch].count(1) == 2


def test_and_then_reported_while_all_others_run(talk):
    engine, dead = Scripted(deaths={1: 9}), []
    outcomes = run_all(
        engine, map(_task, range(4)), talk[0], died=lambda task, error: dead.append((task.number, error))
    )
    assert {number: outcome.status for number, outcome in outcomes.items()} == {
        0: "done",
        1: "died",
        2: "done",
        3: "done",
    }
    assert dead == [(1, "RuntimeError: killed")]
    assert talk[0].done == {0, 2, 3}
    assert [number for batch in engine.batches for number in batch].count(1) == 2


def test_jobs_that_failed_before_and_wait_to_run_again_count_in_the_time_left(tmp_path):
    traces = [
        *[{"status": "done", "seconds": 3600.0}] * 5,
        {"status": "running", "host": "elsewhere", "begun": time.time()},
        *[{"status": "failed", "error": "out of memory"}] * 20,
    ]
    for number, trace in enumerate(traces):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "run.json").write_text(json.dumps({"job": number, **trace}))
    said = []
    talk = Talk(tmp_path, Manifest({n: (f"seed={n}",) for n in range(26)}), say=said.append, left=set(range(5, 26)))
    talk.ended(_task(25), Outcome("failed"))
    talk.beat -= HEARTBEAT
    talk.look([])
    assert said[1] == "5 done, 1 running, 1 failed, 19 to do; about 20.0 h left"


def test_what_an_engine_waits_for_is_told_with_how_jobs_stand(talk):
    talk[0].waits_for = lambda: "in Slurm's queue: 5 (Priority)"
    talk[0].beat -= HEARTBEAT
    talk[0].look([])
    assert talk[1] == ["5 to do; in Slurm's queue: 5 (Priority)"]


def test_an_engine_is_stopped_where_the_program_is(talk):
    class StoppedError(BaseException):
        pass

    def stop():
        raise StoppedError

    engine = Scripted()
    with pytest.raises(StoppedError):
        run_all(engine, iter([_task(0, stop)]), talk[0], died=pytest.fail)
    assert engine.stopped
