"""Killed with SIGKILL in any phase and started again with the same command: the result is bit-identical."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.cli import command, environment
from tests.pipeline.test_end_to_end import comparable

ARGUMENTS = (
    "clients.epochs=30",
    "clients.batch_size=32",
    "stratify.steps=12",
    "stratify.batch_size=64",
    "distill.rounds=12",
    "distill.generator_steps=6",
    "distill.batch_size=64",
    "generator.width=8",
    "partition.alpha=0.3",
    "trainer=cpu",
)


def _entries(store: Path, phase: str, pattern: str) -> list[Path]:
    return list((store / phase).glob(pattern)) if (store / phase).is_dir() else []


def _finished(store: Path, phase: str) -> int:
    return len(_entries(store, phase, "*/manifest.json")) - len(_entries(store, phase, "*.new/manifest.json"))


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "clients": lambda store: 2 <= _finished(store, "clients") < 5,
    "stratify": lambda store: len(_entries(store, "stratify", "*.work/classes-*.json")) >= 3,
    "distill": lambda store: len(_entries(store, "distill", "*.work/batch-*.safetensors")) >= 4,
}


def _start(folder: Path, store: Path) -> subprocess.Popen[bytes]:
    arguments = command(*ARGUMENTS, f"hydra.run.dir={folder}")
    return subprocess.Popen(arguments, env=environment(store), cwd=store.parent, stdout=subprocess.DEVNULL)


def _result(folder: Path) -> tuple[dict, bytes]:
    summary = json.loads((folder / "summary.json").read_text())
    return comparable(summary), (folder / "server.safetensors").read_bytes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> tuple[dict, bytes]:
    root = tmp_path_factory.mktemp("unbroken")
    assert _start(root / "run", root / "store").wait(timeout=240) == 0
    return _result(root / "run")


@pytest.mark.parametrize("phase", sorted(MOMENTS))
def test_killed_and_started_again(phase, unbroken, tmp_path):
    store = tmp_path / "store"
    process = _start(tmp_path / "killed", store)
    deadline = time.monotonic() + 200
    while not MOMENTS[phase](store):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "summary.json").exists()
    assert _finished(store, phase) < {"clients": 5, "stratify": 5, "distill": 1}[phase]
    finished = {path: path.stat().st_mtime_ns for path in store.glob("*/*/manifest.json")}
    assert _start(tmp_path / "again", store).wait(timeout=240) == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "finished work was done again"
    assert _result(tmp_path / "again") == unbroken
    assert not list(store.rglob("*.work"))
