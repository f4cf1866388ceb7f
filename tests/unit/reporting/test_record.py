"""`run.json` and `error.txt`: what stays of a run however it ends."""

import errno
import json
import os
import signal
import socket
import sys
import time

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.process import Interrupted
from oneshot_fl.reporting.record import traced

WHERE = ("host", "pid", "begun", "seconds")


def _trace(folder):
    """A trace without where and when."""
    trace = json.loads((folder / "run.json").read_text())
    return {key: value for key, value in trace.items() if key not in WHERE}


def test_a_run_is_told_of_from_its_first_moment_and_more_when_more_is_known(tmp_path):
    with traced(tmp_path, {"method": "dense"}) as trace:
        assert _trace(tmp_path) == {"method": "dense", "status": "running"}
        trace.describe({"method": "dense", "seed": 3})
        assert _trace(tmp_path) == {"method": "dense", "seed": 3, "status": "running"}
    assert _trace(tmp_path) == {"method": "dense", "seed": 3, "status": "done"}
    assert not (tmp_path / "error.txt").exists()


def test_it_says_where_and_how_long(tmp_path):
    with traced(tmp_path, {}) as trace:
        trace.on("cuda:3")
    told = json.loads((tmp_path / "run.json").read_text())
    assert (told["host"], told["pid"], told["device"]) == (socket.gethostname(), os.getpid(), "cuda:3")
    assert 0 <= told["seconds"] < 60


def test_a_clock_that_is_set_meanwhile_changes_no_seconds(tmp_path, monkeypatch):
    with traced(tmp_path, {}):
        monkeypatch.setattr("time.time", lambda: 0.0)
    assert 0 <= json.loads((tmp_path / "run.json").read_text())["seconds"] < 60


def test_a_running_one_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.reporting.record.ALIVE", 0.01)
    with traced(tmp_path, {}):
        os.utime(tmp_path / "run.json", (0, 0))
        deadline = time.monotonic() + 60
        while not (tmp_path / "run.json").stat().st_mtime:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_signs_of_life_go_on_where_a_disk_fails_for_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.reporting.record.ALIVE", 0.01)
    failed, renew = [], os.utime

    def fail_twice(path):
        if len(failed) < 2:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error")
        renew(path)

    with traced(tmp_path, {}):
        renew(tmp_path / "run.json", (0, 0))
        monkeypatch.setattr("os.utime", fail_twice)
        deadline = time.monotonic() + 10
        while not (tmp_path / "run.json").stat().st_mtime:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert len(failed) == 2


def test_one_that_its_engine_ends_is_interrupted(tmp_path):
    with pytest.raises(SystemExit), traced(tmp_path, {}):
        sys.exit(-1)
    assert _trace(tmp_path)["status"] == "interrupted"


def test_one_that_its_caller_stops_is_interrupted(tmp_path):
    with pytest.raises(KeyboardInterrupt), traced(tmp_path, {}):
        raise KeyboardInterrupt
    assert _trace(tmp_path)["status"] == "interrupted"


def test_a_failure_keeps_its_line_and_its_traceback(tmp_path):
    def fails():
        raise OneshotError("data.size=0:\nmust be 1")

    with pytest.raises(OneshotError), traced(tmp_path, {"method": "dense"}):
        fails()
    assert _trace(tmp_path) == {"method": "dense", "status": "failed", "error": "data.size=0: must be 1"}
    assert "in fails" in (tmp_path / "error.txt").read_text()
    with traced(tmp_path, {}):
        assert not (tmp_path / "error.txt").exists()  # of another attempt


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "MemoryError"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError("shapes\ndiffer"), "RuntimeError: shapes differ"),
    ],
)
def test_a_reason_that_is_not_ours_has_its_kind(tmp_path, error, reason):
    with pytest.raises(type(error)), traced(tmp_path, {}):
        raise error
    assert _trace(tmp_path) == {"status": "failed", "error": reason}


def test_what_fails_because_of_a_stop_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.process._asked", [signal.SIGINT])
    with pytest.raises(ValueError, match="of a stop"), traced(tmp_path, {}):
        raise ValueError("what an extension module made of a stop")
    assert _trace(tmp_path)["status"] == "interrupted"
    assert not (tmp_path / "error.txt").exists()


def test_an_interrupted_run_says_so(tmp_path):
    with pytest.raises(Interrupted), traced(tmp_path, {}):
        raise Interrupted(signal.SIGTERM)
    assert _trace(tmp_path) == {"status": "interrupted", "error": "interrupted; the same command resumes"}
