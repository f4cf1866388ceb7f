"""Sweeps as processes of their own: side by side, killed, asked how they stand, and begun again."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import cloudpickle
import pytest

from oneshot_fl.launchers.engine import Outcome, Task
from oneshot_fl.launchers.loop import Talk, run_all
from oneshot_fl.sweeps.manifest import Manifest, read_manifest
from oneshot_fl.sweeps.state import Job, jobs_of
from tests.composing import TINY
from tests.pipeline.cli import call, command, environment

SWEEP = ("-m", "hydra.sweep.dir=sweep")
SLOW = ("-m", "hydra.sweep.dir=sweep", "seed=0,1,2", "hydra/launcher=joblib", "hydra.launcher.at_once=2")
"""Jobs of which each can be stopped in the middle."""
LENGTHS = ("clients.epochs=60", "distill.rounds=6", "distill.generator_steps=4")


def _jobs(folder: Path) -> list[Job]:
    return jobs_of(folder, read_manifest(folder))


def _statuses(folder: Path) -> list[str]:
    return [job.status for job in _jobs(folder)]


def test_failed_jobs_are_told_and_only_they_run_again(tmp_path):
    done = call(*SWEEP, "method=fedavg", "partition.alpha=0.5,-1", cwd=tmp_path)
    assert (done.returncode, _statuses(tmp_path / "sweep")) == (2, ["done", "failed"])
    assert "job 1 of 2 failed" in done.stderr
    run = partial(call, cwd=tmp_path, tiny=False)
    status = run("status", "sweep")
    assert status.returncode == 0
    told = status.stdout.splitlines()
    assert "2 jobs: 1 done, 1 failed" in told[0]
    assert told[1].startswith("job 1 of 2 failed")
    python, dash_m, program, *words = shlex.split(told[2])
    assert (python, dash_m, program) == ("python", "-m", "oneshot_fl")
    assert "partition.alpha=-1" in words
    assert run(*words).stderr.startswith("oneshot_fl: partition.alpha=-1")
    assert _statuses(tmp_path / "sweep") == ["done", "failed"]
    before = (tmp_path / "sweep" / "multirun.yaml").stat().st_mtime_ns
    first = _jobs(tmp_path / "sweep")[0]
    again = run("status", "sweep", "--rerun", "failed")
    assert again.returncode == 2
    assert again.stdout.startswith("python -m oneshot_fl -m method=fedavg ")
    assert "job 1 of 2 failed" in again.stderr
    assert "job 0" not in again.stderr
    assert (tmp_path / "sweep" / "multirun.yaml").stat().st_mtime_ns > before
    assert _jobs(tmp_path / "sweep")[0] == first


def test_no_failed_job_is_left_out_when_fewer_were_begun_last(tmp_path):
    for alphas in ("-1,-2", "-1"):
        assert call(*SWEEP, "method=fedavg", f"partition.alpha={alphas}", cwd=tmp_path).returncode == 2
    run = partial(call, "status", "sweep", "--rerun", "failed", cwd=tmp_path, tiny=False)
    assert "partition.alpha=-1,-2" in shlex.split(run("--dry-run").stdout)
    manifest = read_manifest(tmp_path / "sweep")
    command = tuple(word.replace("-1,-2", "-1") for word in manifest.command)
    replace(manifest, command=command).write(tmp_path / "sweep")  # as earlier versions did
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    again = run()
    assert again.returncode == 2
    assert "does not make all jobs that failed: 1 (partition.alpha=-2);" in again.stderr
    assert again.stderr.count("oneshot_fl: ") == 1  # not how the sweep stands that lies there
    assert len(before) == 2
    assert {path: path.stat().st_mtime_ns for path in before} == before, "something was run"


WITHOUT_TORCH = """
import sys
from oneshot_fl.__main__ import main
main()
assert "torch" not in sys.modules, "a done job loaded torch"
"""


@pytest.mark.parametrize(
    "launcher", [("local",), pytest.param(("joblib", "hydra.launcher.at_once=1"), marks=pytest.mark.slow)]
)
def test_done_jobs_need_no_torch(tmp_path, launcher):
    words = (*SWEEP, "method=fedavg", "seed=0,1", f"hydra/launcher={launcher[0]}", *launcher[1:], *TINY)
    assert call(*words, cwd=tmp_path, tiny=False).returncode == 0
    own = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep").glob("*/run.json")}
    environ = environment(tmp_path / "store")
    for folder in ("sweep", "other"):
        again = [sys.executable, "-c", WITHOUT_TORCH, *words, f"hydra.sweep.dir={folder}"]
        done = subprocess.run(again, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (done.stdout + done.stderr).count("done before") == 2
        assert _statuses(tmp_path / folder) == ["done", "done"]
        assert f"2 done in {tmp_path / folder}\n" in done.stderr
        assert len(list((tmp_path / folder).glob("*/server.safetensors"))) == 2
    assert {path: path.stat().st_mtime_ns for path in own} == own
    status = call("status", "sweep", "--rerun", "failed", cwd=tmp_path, tiny=False)
    assert (status.returncode, status.stdout.splitlines()[1:]) == (0, ["nothing failed"])


def _start(folder: Path) -> subprocess.Popen[str]:
    words = command(*SLOW, *TINY, *LENGTHS)
    environ = environment(folder / "store")
    return subprocess.Popen(words, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True)


def _wait(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 280
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _pids(folder: Path) -> list[int]:
    """Of the workers whose jobs are in the middle: something of theirs is in the store."""
    running = [job for job in _jobs(folder) if job.status == "running"] if (folder / "sweep.json").exists() else []
    return [json.loads((job.folder / "run.json").read_text())["pid"] for job in running if job.folder and job.progress]


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_own_job_a_moment(tmp_path):
    process = _start(tmp_path)
    _wait(lambda: len(_pids(tmp_path / "sweep")) == 2)
    os.kill(_pids(tmp_path / "sweep")[0], signal.SIGKILL)
    _, err = process.communicate(timeout=280)
    assert (process.returncode, _statuses(tmp_path / "sweep")) == (0, ["done"] * 3)
    assert err.count("taken up again") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_sweep_that_is_killed_leaves_nothing_running_and_goes_on(tmp_path, number):
    process = _start(tmp_path)
    _wait(lambda: len(_pids(tmp_path / "sweep")) == 2)
    pids = _pids(tmp_path / "sweep")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    _wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert sorted(_statuses(tmp_path / "sweep")) == ["interrupted", "interrupted", "to do"]
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*/*/manifest.json")}
    process = _start(tmp_path)
    process.communicate(timeout=280)
    assert (process.returncode, _statuses(tmp_path / "sweep")) == (0, ["done"] * 3)
    assert {path: path.stat().st_mtime_ns for path in made} == made, "finished work was done again"


def _dies_once(number: int, folder: str) -> Outcome:
    """Die by SIGKILL if it is the first attempt of job 1."""
    begun = Path(folder, f"begun-{number}")
    first = not begun.exists()
    begun.touch()
    if number == 1 and first:
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"this is job {number}")
    return Outcome("done", float(number))


@pytest.mark.slow
def test_jobs_on_a_local_cluster_of_ray(tmp_path):
    rays = pytest.importorskip("oneshot_fl.launchers.rays", reason="pip install 'oneshot-fl[ray]'")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    names = {number: (f"seed={number}",) for number in range(4)}
    calls = {number: partial(_dies_once, number, str(tmp_path)) for number in names}
    tasks = (Task(number, names[number], tmp_path / str(number), calls[number], str(tmp_path)) for number in names)
    said: list[str] = []
    engine = rays.Rays(here=2)
    try:
        assert engine.at_once == 2
        talk = Talk(tmp_path, Manifest(names), say=said.append)
        outcomes = run_all(engine, tasks, talk, lambda _, error: pytest.fail(error))
    finally:
        engine.stop()
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert {number: outcome.value for number, outcome in outcomes.items()} == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}
    assert (tmp_path / "1" / "job.log").read_text() == "this is job 1\n"
    assert len([line for line in said if "taken up again" in line]) == 1


@pytest.mark.gpu
def test_jobs_share_a_gpu_as_often_as_they_may(tmp_path):
    pytest.importorskip("torch").cuda.is_available() or pytest.skip("no accelerator")
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    own = {"CUDA_VISIBLE_DEVICES": shown, "TMPDIR": str(tmp_path)}  # leases lie there, so nobody else's is waited for
    environ = environment(tmp_path / "store") | own
    words = ("method=fedavg", "seed=0,1,2", "hydra/launcher=joblib", *TINY, "trainer=gpu", "trainer.jobs_per_gpu=2")
    done = subprocess.run(
        command(*SWEEP, *words), cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [(job.status, job.device) for job in _jobs(tmp_path / "sweep")] == [("done", f"cuda:{shown}")] * 3
