"""Jobs in processes of joblib's engine: one that dies takes no other with it."""

import os
import sys
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import cloudpickle
import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.launchers.engine import Outcome, Task
from oneshot_fl.launchers.loop import Talk, run_all
from oneshot_fl.launchers.workers import Workers
from oneshot_fl.sweeps.manifest import Manifest


def _job(number: int, folder: str) -> Outcome:
    """Print, tell the threads, and die by SIGKILL if it is the first attempt of job 1."""
    print(f"this is job {number}", flush=True)
    os.system(f"echo and its child {number}")
    begun = Path(folder, f"begun-{number}")
    first = not begun.exists()
    begun.touch()
    if number == 1 and first:
        while not Path(folder, "begun-0").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    if number == 0:  # still on when its neighbour dies
        while not Path(folder, "begun-1").exists():
            time.sleep(0.01)
        time.sleep(0.2)
    return Outcome("done", float(os.environ["OMP_NUM_THREADS"]))


def _grow(_number: int) -> Outcome:
    """Keep 400 MB, and more time than loky waits before it looks at a process again."""
    os.kept = b"1" * 400_000_000  # type: ignore[attr-defined]
    time.sleep(1.1)
    return Outcome("done", float(os.getpid()))


@pytest.fixture
def by_value():
    """Workers do not know the tests' modules."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_a_process_that_dies_takes_no_other_job_with_it(by_value, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("oneshot_fl.launchers.cores.cpu_count", lambda: 6)
    said = []
    tasks = (
        Task(number, (f"seed={number}",), tmp_path / str(number), partial(_job, number, str(tmp_path)), str(tmp_path))
        for number in range(3)
    )
    talk = Talk(tmp_path, Manifest({number: (f"seed={number}",) for number in range(3)}), say=said.append)
    engine = Workers(at_once=2)
    try:
        outcomes = run_all(engine, tasks, talk, died=lambda _, error: pytest.fail(error))
    finally:
        engine.stop()
    assert {number: (outcome.status, outcome.value) for number, outcome in outcomes.items()} == dict.fromkeys(
        range(3), ("done", 3.0)
    )
    assert len([line for line in said if "taken up again" in line]) == 1
    assert (tmp_path / "0" / "job.log").read_text() == "this is job 0\nand its child 0\n"
    assert (tmp_path / "1" / "job.log").read_text() == "this is job 1\nand its child 1\n" * 2


def _pid() -> Outcome:
    return Outcome("done", float(os.getpid()))


def test_a_process_that_grows_does_the_next_job_too(by_value, tmp_path):
    pytest.importorskip("psutil")  # without it loky does not look
    engine = Workers(at_once=1)
    try:
        done = [
            engine.submit([Task(number, (), tmp_path, partial(_grow, number), str(tmp_path))])[0].result(timeout=120)
            for number in range(2)
        ]
    finally:
        engine.stop()
    assert len({outcome.value for outcome in done}) == 1


def test_a_process_that_dies_between_two_jobs_costs_none(by_value, tmp_path):
    engine, task = Workers(at_once=1), Task(0, (), tmp_path / "job", _pid, str(tmp_path))
    pids = []
    try:
        for _ in range(2):
            (future,) = engine.submit([task])
            pids.append(int(future.result(timeout=60).value))
            os.kill(pids[-1], 9)
            deadline = time.monotonic() + 60
            while not engine._pools[0]._flags.broken:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    finally:
        engine.stop()
    assert pids[0] != pids[1]


@pytest.mark.parametrize(
    ("shown", "jobs_per_gpu", "at_once", "expected"),
    [("0,1,2,3,4,5,6,7", 1, None, 8), ("0,1", 3, None, 6), ("", 1, None, 5), ("0,1", 0, None, 5), ("0,1", 3, 4, 4)],
)
def test_there_is_a_place_for_each_job_of_a_gpu_or_for_each_core(monkeypatch, shown, jobs_per_gpu, at_once, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    monkeypatch.setattr("oneshot_fl.devices._is_there", lambda library: True)  # as where there are GPUs
    monkeypatch.setattr("oneshot_fl.launchers.workers.cpu_count", lambda: 5)
    assert Workers(jobs_per_gpu=jobs_per_gpu, at_once=at_once).at_once == expected


def test_a_place_costs_nothing_before_it_has_a_job():
    engine = Workers(at_once=100_000)
    assert (engine.at_once, engine._pools) == (100_000, {})
    engine.stop()


@pytest.mark.parametrize("at_once", [0, -1, "2", 1.5])
def test_a_wrong_number_of_jobs_is_one_line(at_once):
    with pytest.raises(OneshotError, match=r"hydra\.launcher\.at_once="):
        Workers(at_once=at_once)


def test_a_job_that_ends_while_the_workers_are_stopped_does_not_keep_them_alive(monkeypatch):
    engine, ended, told = Workers(at_once=2), [], []
    for place in range(2):
        engine._pids[place] = Future()
        engine._pids[place].set_result(place)

    def tell(pid):
        told.append(pid)
        engine._pids.clear()  # as where the jobs end at this moment

    monkeypatch.setattr("oneshot_fl.launchers.workers._tell", tell)
    monkeypatch.setattr("oneshot_fl.launchers.workers._end", ended.append)
    engine.stop()
    assert (told, ended) == ([0, 1], [engine._pools])
