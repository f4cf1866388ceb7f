"""Flower's programs as processes of our own, each ended with everything that it started."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "flower"
BIN = Path(sys.executable).parent
needs_flower = pytest.mark.skipif(
    find_spec("flwr") is None, reason="needs Flower: pip install '.[flower]', in an environment of its own"
)

PATIENT = """
import flwr.common.constant as known
known.HEARTBEAT_DEFAULT_INTERVAL = 600
from flwr.{room}.cli import flower_{room} as main
main()
"""
"""A SuperLink or SuperNode that gives the processes it starts minutes instead of 30 seconds to say that they live: on a
busy machine they need longer to import what they need."""


def environment(folder: Path) -> dict[str, str]:
    """Everything that Flower and oneshot_fl keep lies below `folder`; nothing is fetched."""
    return os.environ | {
        "FLWR_HOME": str(folder / "flwr"),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "ONESHOT_FL_STORE": str(folder / "store"),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def running(name: str, room: str, *arguments: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `superlink` or `supernode`, with a log in `folder`."""
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PATIENT.format(room=room), *arguments],
            env=environment(folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End a program of ours and what it started; nothing where it has ended already."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, how)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def superlink(*arguments: str, connection: str, folder: Path) -> Iterator[int]:
    """A SuperLink that `flwr ... here` finds; gives its port once it listens there."""
    port = free_port()
    (folder / "flwr").mkdir(exist_ok=True)
    (folder / "flwr" / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\n{connection}\n')
    with running("superlink", "superlink", "--port", str(port), *arguments, folder=folder) as process:
        wait_until(lambda: _listens(port), process)
        yield port


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def wait_until(moment, *processes: subprocess.Popen[bytes], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not moment():
        assert all(process.poll() is None for process in processes), "a program has ended"
        assert time.monotonic() < deadline
        time.sleep(0.1)


def flwr(*arguments: str, folder: Path) -> str:
    """What Flower's own command prints."""
    done = subprocess.run(
        [str(BIN / "flwr"), *arguments],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_app(config: Mapping[str, object], *options: str, folder: Path) -> str:
    """One run of our app, awaited; Flower says nothing of its success, the files do."""
    values = folder / "run.toml"
    values.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in config.items()))
    return flwr("run", str(APP), "here", "--stream", "--run-config", str(values), *options, folder=folder)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str | Path) else str(value)
