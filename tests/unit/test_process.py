import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from oneshot_fl.process import (
    MALLOPT,
    STOPPING,
    Interrupted,
    again_and_again,
    end_with,
    interruption,
    keep_freed_memory,
    one_at_a_time,
    print_whatever_it_is,
    share_the_cores,
    stoppable,
)


@pytest.mark.parametrize(
    ("errors", "printed"), [("strict", rb"\u03b1 \udce9"), ("surrogateescape", b"\\u03b1 \xe9"), ("ignore", b" ")]
)
def test_letters_that_stdout_has_not_got_are_escaped_and_bytes_given_back_where_it_does_that(
    errors, printed, monkeypatch
):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", errors=errors))
    print_whatever_it_is()
    print("\u03b1", "\udce9", end="", flush=True)
    assert written.getvalue() == printed


@pytest.fixture
def environment(monkeypatch):
    for name in (
        "GOMP_SPINCOUNT",
        "OMP_WAIT_POLICY",
        "MALLOC_TRIM_THRESHOLD_",
        "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TOP_PAD_",
    ):
        monkeypatch.setenv(name, "unset")  # so that what a test leaves is undone
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(("given", "expected"), [({}, "5000"), ({"OMP_WAIT_POLICY": "active"}, None)])
def test_threads_give_their_core_away_unless_told_otherwise(environment, given, expected):
    for name, value in given.items():
        environment.setenv(name, value)
    share_the_cores()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


class Glibc:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[int, int] = {}

    def mallopt(self, parameter: int, value: int) -> None:
        self.told[parameter] = value


@pytest.mark.parametrize(
    ("platform", "given", "told"), [("linux", {}, 3), ("darwin", {}, 0), ("linux", {"MALLOC_TOP_PAD_": "0"}, 0)]
)
def test_only_glibc_is_told_to_keep_memory_and_the_users_settings_win(environment, platform, given, told):
    library = Glibc()
    environment.setattr("oneshot_fl.process.ctypes.CDLL", lambda _: library)
    environment.setattr("oneshot_fl.process.sys.platform", platform)
    for name, value in given.items():
        environment.setenv(name, value)
    keep_freed_memory()
    assert len(library.told) == told
    assert library.told.items() <= set(MALLOPT.values())


WITHIN = """
import sys, time
from oneshot_fl import process
from oneshot_fl.process import stoppable
def begun():
    print("begun", flush=True)
with stoppable():
    {body}
"""
SLEEP = """
    try:
        begun()
        time.sleep(60)
    finally:
        print("cleaned up")
    print("went on")
"""
SWALLOWED = """
    try:
        begun()
        time.sleep(60)
    except BaseException:
        print("cleaned up")
    time.sleep(60)
    print("went on")
"""
TURNED_INTO_ANOTHER = """
    try:
        begun()
        time.sleep(60)
    except BaseException:
        print("cleaned up")
        raise ValueError("as extension modules do")
    print("went on")
"""
SLOW_CLEANING = """
    try:
        begun()
        time.sleep(60)
    finally:
        time.sleep(2.5)
        print("cleaned up")
    print("went on")
"""
IMPORTING = """
    try:
        begun()
        while True:
            for name in [name for name in sys.modules if name.startswith("json")]:
                del sys.modules[name]
            import json
    finally:
        print("cleaned up")
    print("went on")
"""


WHERE_NOTHING_CAN_BE_RAISED = """
    class Dropped:
        def __del__(self):
            begun()
            time.sleep(60)
    try:
        Dropped()
        time.sleep(60)
    finally:
        print("cleaned up")
    print("went on")
"""


def started(body: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", WITHIN.format(body=body.lstrip())], **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "body", [SLEEP, SWALLOWED, TURNED_INTO_ANOTHER, SLOW_CLEANING, IMPORTING, WHERE_NOTHING_CAN_BE_RAISED]
)
def test_a_signal_ends_the_process_with_one_line_after_cleaning_up(body, number, code):
    process = started(body)
    process.send_signal(number)
    process.send_signal(number)  # as when a terminal and a wrapper both pass it on
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out) == (code, "cleaned up\n")
    assert err.endswith("oneshot_fl: interrupted; the same command resumes\n")
    assert "Traceback" not in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("body", ["print('a line')", "print('a line', flush=True)", "print('a line'); sys.exit(0)"])
def test_output_that_has_no_room_is_told_in_one_line(body, unbuffered):
    pipes = {"stderr": subprocess.PIPE, "text": True, "env": os.environ | {"PYTHONUNBUFFERED": unbuffered}}
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", WITHIN.format(body=body)], check=False, stdout=full, **pipes)
    line = "oneshot_fl: the output cannot be written (No space left on device); make room where it goes\n"
    assert (ended.returncode, ended.stderr) == (2, line)


@pytest.fixture
def handlers():
    """How signals are handled before a test; so they are after it too, and no stop is left to another block."""
    before = {number: signal.getsignal(number) for number in (*STOPPING, signal.SIGALRM)}
    yield before
    with stoppable():
        assert interruption() is None  # it is another block's
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_what_begins_anew_does_not_say_that_it_resumes(capsys):
    with pytest.raises(SystemExit) as raised, stoppable(resumes=False):
        signal.raise_signal(signal.SIGTERM)
    assert (raised.value.code, capsys.readouterr().err) == (143, "oneshot_fl: interrupted\n")


def test_a_signal_after_a_while_ends_what_does_not_clean_up():
    process = started(SLOW_CLEANING.replace("2.5", "60").replace("    begun()", "    process.PATIENCE = 0; begun()"))
    process.send_signal(signal.SIGTERM)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM


def test_after_the_block_signals_are_as_before_and_after_a_stop_they_cannot_break_into_the_end(handlers):
    with stoppable():
        pass
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    with pytest.raises(SystemExit) as raised, stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert raised.value.code == 143
    assert {number: signal.getsignal(number) for number in STOPPING} == dict.fromkeys(STOPPING, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGALRM) == handlers[signal.SIGALRM]
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_threads_wait_for_each_other_and_one_may_go_deeper():
    inside, over = threading.Event(), []

    def other():
        inside.set()
        with one_at_a_time():
            over.append("other")

    with one_at_a_time(), one_at_a_time():
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
        thread.join(timeout=0.2)
        over.append("first")
    thread.join()
    assert over == ["first", "other"]


def test_a_stop_is_no_exception_and_no_keyboard_interrupt():
    assert not issubclass(Interrupted, Exception | KeyboardInterrupt)


def test_something_is_done_again_and_again_until_the_block_ends():
    done = []
    with again_and_again(lambda: done.append(1), 0.01):
        deadline = time.monotonic() + 60
        while len(done) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    after = len(done)
    time.sleep(0.05)
    assert len(done) == after


WORKER = """
import os, time
from oneshot_fl.process import end_with
end_with(os.getppid(), patience=1.0)
print("begun", flush=True)
time.sleep(60)
print("outlived it")
"""
BEGINS_IT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}])"


def test_a_worker_ends_with_the_process_that_began_it():
    with subprocess.Popen([sys.executable, "-c", BEGINS_IT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begun\n"
        parent.kill()
        assert parent.stdout.read() == ""


def test_a_process_does_not_wait_for_its_own_end(monkeypatch):
    monkeypatch.setattr("threading.Thread", None)
    end_with(os.getpid(), patience=1.0)
