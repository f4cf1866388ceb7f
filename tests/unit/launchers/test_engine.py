"""A job in a process of an engine: its output in its folder, a stop as an outcome."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from oneshot_fl.launchers.engine import Outcome, Task, work


@pytest.fixture
def task(tmp_path, monkeypatch):
    """A function from what a job does to the job."""
    monkeypatch.chdir(Path(__file__).parent)  # put back afterwards
    return lambda call: Task(0, (), tmp_path / "job", call, str(tmp_path))


def test_what_a_job_prints_lies_in_its_folder_and_the_streams_are_put_back(task, capfd):
    def talk():
        print("from Python")
        print("to the other stream", file=sys.stderr)
        os.write(1, b"from a library\n")
        return Outcome("done", 0.5)

    for _ in range(2):
        assert work(task(talk), "job.log") == Outcome("done", 0.5)
    print("after it")
    log = (task(talk).folder / "job.log").read_text()
    assert log == "from Python\nto the other stream\nfrom a library\n" * 2
    assert capfd.readouterr() == ("after it\n", "")


def test_a_job_runs_where_the_sweep_was_begun(task, tmp_path):
    assert work(task(lambda: Outcome("done", float(Path.cwd() == tmp_path))), "job.log").value == 1.0


def test_a_stop_is_an_outcome_and_the_process_goes_on(task):
    def stopped():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        return Outcome("done")

    outcome = work(task(stopped), "job.log")
    assert (outcome.status, "143" in outcome.error) == ("interrupted", True)
    assert "interrupted; the same command resumes" in (task(stopped).folder / "job.log").read_text()


def test_an_error_of_the_engines_own_is_left_to_it(task):
    with pytest.raises(ZeroDivisionError):
        work(task(lambda: 1 / 0), "job.log")
    assert sys.stdout.name != str(task(None).folder / "job.log")
