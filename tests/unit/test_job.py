"""One job: what is remembered of a run is what it was made of."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from types import MappingProxyType
from typing import Any

import pytest
import torch

from oneshot_fl.code import _seen
from oneshot_fl.errors import OneshotError
from oneshot_fl.job import job, take_over
from oneshot_fl.phases.trainer import TrainerSettings
from oneshot_fl.sweeps.alone import LOCK, alone_in
from tests.parts import CPU

MODULE = "a_net_of_a_user"


@dataclass(frozen=True)
class Bound:
    """As much of an experiment as a job looks at."""

    record: dict[str, Any] = field(default_factory=dict)
    trainer: TrainerSettings = CPU
    ready: Callable[[], None] = lambda: None
    """What is seen with its data at hand."""


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "image.png").write_bytes(b"pixels")
    return folder


@pytest.fixture
def code(tmp_path, monkeypatch):
    """The file of a user's model; what this process knows of it is forgotten in the end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / f"{MODULE}.py"
    file.write_text("width = 1\n")
    yield file
    _forget()


def _forget() -> None:
    """As a new process would not know it."""
    sys.modules.pop(MODULE, None)
    _seen.pop(MODULE, None)


@pytest.fixture
def runs(root, code, tmp_path, monkeypatch):
    """A function that runs a job, while something is done, and says whether it ran at all."""

    def run(_experiment, folder):
        for name in ("config.yaml", "server.safetensors"):
            (folder / name).write_text("whole")
        summary = {"server": {"accuracy_last": 0.5}}
        (folder / "summary.json").write_text(json.dumps(summary))
        return summary

    monkeypatch.setattr("oneshot_fl.pipeline.run", run)
    monkeypatch.setattr("oneshot_fl.pipeline.ready", lambda experiment: experiment.ready())
    monkeypatch.setattr("oneshot_fl.reporting.printed.print_summary", lambda *_: None)
    config = {
        "data": {"name": "image_folder", "_target_": "oneshot_fl.data.image_folder.image_folder", "root": str(root)},
        "proxy": {"name": "noise", "_target_": "oneshot_fl.data.proxy.noise"},
        "partition": {"name": "iid", "_target_": "oneshot_fl.data.partition.iid"},
        "model": {"name": "mine", "_target_": f"{MODULE}.width"},
        "logger": {},
        "trainer": {"accelerator": "cpu", "precision": "32-true", "jobs_per_gpu": 1},
        "store": str(tmp_path / "store"),
    }

    def runs(
        meanwhile=lambda: None, check=lambda: None, ready=lambda: None, known=MappingProxyType({}), **trainer
    ) -> bool:
        made, chosen = [], config | {"trainer": config["trainer"] | trainer}
        bound = Bound(ready=ready)
        job(lambda: (made.append(True), meanwhile(), bound)[-1], known, chosen, tmp_path / "run", check=check)
        return bool(made)

    return runs


def test_a_run_is_remembered_and_the_same_one_is_done_before(runs, tmp_path, capsys):
    assert runs()
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["status"], told["arithmetic"], len(told["key"])) == ("done", "cpu.32-true", 20)
    assert not runs()
    assert "done before" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["config.yaml", "server.safetensors", "metrics.csv", "accuracy.png"])
def test_what_no_run_has_left_is_not_written_over(runs, tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("mine")
    with pytest.raises(OneshotError, match=rf"run: holds {name}, which would be written over"):
        runs()
    assert (tmp_path / "run" / name).read_text() == "mine"
    (tmp_path / "run" / name).unlink()
    assert runs()
    (tmp_path / "run" / "config.yaml").rename(tmp_path / "config.yaml")
    (tmp_path / "run").rename(tmp_path / "first")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("mine")
    with pytest.raises(OneshotError, match=rf"run: holds {name}, which would be written over"):
        runs()


def test_a_run_that_must_not_count_has_failed(runs, tmp_path):
    def other_code():
        raise OneshotError("other code than its sweep's")

    with pytest.raises(OneshotError, match=r"^other code"):
        runs(check=other_code)
    assert _told(tmp_path / "run")["status"] == "failed"
    assert "key" in _told(tmp_path / "run")
    assert runs()


@pytest.mark.parametrize("when", ["meanwhile", "ready"], ids=["a configuration", "its data"])
def test_what_is_refused_leaves_a_result_in_its_folder_as_it_is(runs, tmp_path, capsys, when):
    def refuse():
        raise OneshotError("trainer.precision=64-true: is none")

    assert runs()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(OneshotError, match=r"^trainer\.precision"):
        runs(**{when: refuse}, precision="64-true")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert "takes the place of" not in capsys.readouterr().err
    with pytest.raises(OneshotError, match=r"^trainer\.precision"):
        runs(meanwhile=refuse, known={"job": 3}, precision="64-true")
    assert _told(tmp_path / "run")["status"] == "failed"  # as the sweep whose job it is tells


def test_a_run_whose_figures_nobody_reads_is_done_all_the_same(runs, tmp_path, monkeypatch):
    def unread(*_):
        raise SystemExit(141)

    monkeypatch.setattr("oneshot_fl.reporting.printed.print_summary", unread)
    with pytest.raises(SystemExit):
        runs()
    assert _told(tmp_path / "run")["status"] == "done"
    assert not runs()


def test_a_run_whose_store_cannot_be_written_any_more_is_done_and_the_store_is_told_of(runs, tmp_path, capsys):
    def full(*_):
        raise OneshotError("runs: cannot be written")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneshot_fl.reporting.finished.remember_run", full)
        assert runs()
    told = "oneshot_fl: runs: cannot be written; until then this run is found in its own folder alone\n"
    assert capsys.readouterr().err == told
    assert _told(tmp_path / "run")["status"] == "done"
    assert not runs()


def test_a_run_taken_over_from_a_sweep_is_no_job_of_the_sweep_that_it_lies_in(runs, tmp_path):
    done, copy = tmp_path / "run", tmp_path / "another sweep" / "check"
    assert runs()
    take_over(done, {"job": 1, "overrides": ["seed=1"]}, done)
    assert _told(done)["job"] == 1
    take_over(done, {"overrides": []}, copy)
    assert "job" not in _told(copy)
    take_over(done, {"job": 4}, copy)
    assert _told(copy)["job"] == 4


def test_a_run_that_is_done_gets_the_number_of_the_sweep_that_it_is_a_job_of_only_now(runs, tmp_path):
    done = tmp_path / "run"
    assert runs()
    before = _told(done)
    take_over(done, {"study": "s"}, done)
    assert _told(done) == before
    take_over(done, {"job": 0, "study": "s"}, done)
    assert _told(done) == before | {"job": 0, "study": "s"}
    assert not runs()  # it is still known


def _told(folder):
    return json.loads((folder / "run.json").read_text())


def test_a_run_that_read_edited_code_is_not_remembered_as_one_of_the_code_before(runs, code, tmp_path):
    def edit():
        code.write_text("width = 200\n")
        __import__(MODULE)

    assert runs(edit)
    assert not {"key", "arithmetic"} & json.loads((tmp_path / "run" / "run.json").read_text()).keys()
    _forget()
    code.write_text("width = 1\n")
    assert runs()
    assert not runs()


def test_a_run_whose_data_changed_is_not_remembered_as_one_of_the_data_before(runs, root):
    new = root / "new.png"
    assert runs(lambda: new.write_bytes(b"more"))
    new.unlink()
    assert runs()
    assert not runs()


HOLDS = """
import os, sys
from pathlib import Path
from oneshot_fl.sweeps.alone import alone_in
from oneshot_fl.reporting.record import traced
folder = Path(sys.argv[1])
with alone_in(folder), traced(folder, {}):
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""
"""Another process that works in a folder until it is killed."""


@pytest.fixture
def at_work(tmp_path):
    """Such a process, in the folder of the job that `runs` runs."""
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "run")]
    with subprocess.Popen(command, env=path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        yield process
        process.kill()


def _told_by(capsys, words):
    """What was said until these words were."""
    said, deadline = "", time.monotonic() + 60
    while words not in said:
        assert time.monotonic() < deadline, said
        time.sleep(0.01)
        said += capsys.readouterr().err
    return said


def test_of_two_that_begin_the_same_run_in_one_folder_one_makes_it(runs, capsys):
    begun, ended = Event(), Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(runs, lambda: (begun.set(), ended.wait(60)))
        assert begun.wait(60)
        second = pool.submit(runs)
        try:
            said = _told_by(capsys, "waiting for it to end")
        finally:
            ended.set()
    assert f"run: process {os.getpid()} on " in said
    assert (first.result(), second.result()) == (True, False)


def test_a_run_goes_on_in_the_folder_of_a_process_that_was_killed(runs, at_work, tmp_path, capsys):
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(runs)
        try:
            assert f": process {at_work.pid} on " in _told_by(capsys, "waiting for it to end")
        finally:
            at_work.kill()
        assert job.result(60)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "done"


def test_a_launcher_does_not_wait_for_a_folder(at_work, tmp_path):
    line = rf"run: process {at_work.pid} on .* makes a result there; wait for it to end, or choose another folder$"
    with pytest.raises(OneshotError, match=line), alone_in(tmp_path / "run", wait=False):
        pass


def test_a_run_holds_no_folder_while_it_waits_for_a_device(runs, tmp_path, monkeypatch):
    def lease(*_, **__):
        with alone_in(tmp_path / "run", wait=False):
            return "cuda:0"

    monkeypatch.setattr("oneshot_fl.job.lease_device", lease)
    monkeypatch.setattr("oneshot_fl.phases.trainer.device_of", lambda _: torch.device("cuda:0"))
    assert runs()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["device"] == "cuda:0"


def test_a_run_beside_a_gpu_that_torch_cannot_use_is_one_of_the_cpu(runs, tmp_path, monkeypatch):
    """It was looked for, and a device leased, before torch could be asked."""
    monkeypatch.setattr("oneshot_fl.job.lease_device", lambda *_, **__: "cuda:0")
    monkeypatch.setattr("oneshot_fl.devices.visible_devices", lambda: ("0",))
    assert runs(accelerator="auto", precision="auto")
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["device"], told["arithmetic"]) == ("cpu", "cpu.32-true")
    assert [file.name.partition(".")[2] for file in (tmp_path / "store" / "runs").iterdir()] == ["cpu.32-true.json"]
    assert runs(accelerator="auto", precision="auto")  # no run of a GPU is known


def test_a_run_that_is_done_before_leases_no_device(runs, monkeypatch):
    assert runs()
    monkeypatch.setattr("oneshot_fl.job.lease_device", lambda *_, **__: pytest.fail("a device was leased"))
    assert not runs()


def test_a_run_that_is_done_needs_no_lock_where_it_lies(runs, tmp_path):
    """As in a folder that can only be read, where nothing is to be written either."""
    assert runs()
    (tmp_path / "run" / LOCK).unlink(missing_ok=True)
    (tmp_path / "run" / LOCK).mkdir()
    assert not runs()
