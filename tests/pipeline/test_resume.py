"""Stopped at any moment and started again with the same command: the result is bit-identical."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
from omegaconf import DictConfig

from oneshot_fl.artifacts import write_work
from oneshot_fl.phases import piecewise
from oneshot_fl.phases.checkpoint import RoundCheckpoint
from oneshot_fl.store import Store
from tests.composing import clients_of, few_images, run_config
from tests.contract.choices import THEIRS, with_a_part_of_their_own
from tests.pipeline.cli import call, command, environment

MEASURED = {"seconds", "cost", "peak_memory_bytes"}
METHODS = [method for method in with_a_part_of_their_own() if method not in THEIRS]
"""Others go on with the same parts."""
ROUNDS = 2


class KilledError(Exception):
    """What stops a run in this process."""


@pytest.fixture
def killer():
    """Stops a run after every round and after every artifact that it makes, until it is undone."""
    save, make = RoundCheckpoint.on_train_epoch_end, Store._make

    def save_and_die(self, trainer, module):
        save(self, trainer, module)
        raise KilledError

    def make_and_die(*given, **named):
        make(*given, **named)
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundCheckpoint, "on_train_epoch_end", save_and_die)
        patch.setattr(Store, "_make", make_and_die)
        yield patch


@pytest.fixture(scope="module")
def clients(tmp_path_factory) -> Path:
    """A store in which methods find each other's clients."""
    return tmp_path_factory.mktemp("clients")


def test_the_glob_sees_the_methods():
    assert len(METHODS) >= 9


def _overrides(method: str, store: Path) -> tuple[str, ...]:
    return (f"method={method}", *clients_of(method), *few_images(method), f"distill.rounds={ROUNDS}", f"store={store}")


def _unbroken(cfg: DictConfig, folder: Path, store: Path) -> tuple[dict, bytes]:
    """What a run leaves that nothing stops; the store forgets its server."""
    run_config(cfg, folder)
    shutil.rmtree(store / "distill")
    return _result(folder)


@pytest.mark.slow  # five runs a method
@pytest.mark.parametrize("method", METHODS)
def test_stopped_after_every_round(tiny, tmp_path, request, clients, method):
    overrides = _overrides(method, clients)
    unbroken = _unbroken(tiny(*overrides), tmp_path / "unbroken", clients)
    request.getfixturevalue("killer")
    stops = 0
    while stops < 10:
        try:
            run_config(tiny(*overrides), tmp_path / "resumed")
        except KilledError:
            stops += 1
        else:
            break
    assert stops == len(unbroken[0]["rounds"]) + 1
    assert _result(tmp_path / "resumed") == unbroken


@pytest.mark.parametrize("method", METHODS)
def test_stopped_after_a_round(tiny, tmp_path, request, clients, method):
    overrides = _overrides(method, clients)
    unbroken = _unbroken(tiny(*overrides), tmp_path / "unbroken", clients)
    killer = request.getfixturevalue("killer")
    with pytest.raises(KilledError):
        run_config(tiny(*overrides), tmp_path / "resumed")
    assert bool(list((clients / "distill").glob("*.work/rounds.pt"))) is bool(unbroken[0]["rounds"])
    killer.undo()
    run_config(tiny(*overrides), tmp_path / "resumed")
    assert _result(tmp_path / "resumed") == unbroken


def test_stopped_after_every_artifact(tiny, tmp_path, request):
    chosen = ("method=fedhydra", "partition.clients=2", f"distill.rounds={ROUNDS}")
    run_config(tiny(*chosen), tmp_path / "unbroken")
    request.getfixturevalue("killer")
    overrides = (*chosen, f"store={tmp_path / 'other'}")
    for _ in range(2 + 2 + ROUNDS + 1):  # clients, their stratification, rounds, the server
        with pytest.raises(KilledError):
            run_config(tiny(*overrides), tmp_path / "resumed")
    run_config(tiny(*overrides), tmp_path / "resumed")
    assert _result(tmp_path / "resumed") == _result(tmp_path / "unbroken")


@pytest.mark.parametrize(("method", "at_once"), [("fedchorus", ()), ("fedhydra", ("stratify.classes_at_once=5",))])
def test_stopped_after_every_piece_of_an_artifact(tiny, tmp_path, monkeypatch, method, at_once):
    chosen = ("partition.clients=2", f"distill.rounds={ROUNDS}", *few_images(method), *at_once)
    cfg = partial(tiny, f"method={method}", *chosen)
    run_config(cfg(), tmp_path / "unbroken")

    def write_and_die(*given):
        write_work(*given)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(piecewise, "write_work", write_and_die)
        for _ in range(2 * 2):  # each client's recital has two batches, its stratification two groups of classes
            with pytest.raises(KilledError):
                run_config(cfg(f"store={tmp_path / 'other'}"), tmp_path / "resumed")
        run_config(cfg(f"store={tmp_path / 'other'}"), tmp_path / "resumed")
    assert _result(tmp_path / "resumed") == _result(tmp_path / "unbroken")


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("rounds.pt", _cut_short),
        ("batch-000001.pt", Path.unlink),
        pytest.param("rounds.pt", Path.unlink, marks=pytest.mark.slow),
        pytest.param("batch-000001.pt", _cut_short, marks=pytest.mark.slow),
    ],
)
def test_a_damaged_checkpoint_is_no_checkpoint(tiny, tmp_path, request, pattern, damage):
    overrides = ("method=dense", f"store={tmp_path / 'store'}")
    run_config(tiny(*overrides), tmp_path / "unbroken")
    shutil.rmtree(tmp_path / "store" / "distill")
    killer = request.getfixturevalue("killer")
    for _ in range(2):
        with pytest.raises(KilledError):
            run_config(tiny(*overrides), tmp_path / "resumed")
    (file,) = (tmp_path / "store" / "distill").glob(f"*.work/{pattern}")
    damage(file)
    killer.undo()
    run_config(tiny(*overrides), tmp_path / "resumed")
    assert _result(tmp_path / "resumed") == _result(tmp_path / "unbroken")


ARGUMENTS = (
    "clients.epochs=12",
    "clients.batch_size=32",
    "stratify.steps=8",
    "stratify.batch_size=64",
    "distill.rounds=8",
    "distill.generator_steps=6",
    "distill.batch_size=64",
    "generator.width=8",
    "partition.alpha=0.3",
    "trainer=cpu",
    "plots.format=none",
)


def _entries(store: Path, phase: str, pattern: str) -> list[Path]:
    return list((store / phase).glob(pattern)) if (store / phase).is_dir() else []


def _finished(store: Path, phase: str) -> int:
    return len(_entries(store, phase, "*/manifest.json")) - len(_entries(store, phase, "*.new*/manifest.json"))


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "clients": lambda store: 2 <= _finished(store, "clients") < 5,
    "stratify": lambda store: len(_entries(store, "stratify", "*.work/classes-*.pt")) >= 3,
    "distill": lambda store: len(_entries(store, "distill", "*.work/batch-*.pt")) >= 4,
}


def comparable(summary: dict) -> dict:
    """A summary without what is measured, at the top or per client; what of each phase's cost is counted stays."""
    clients = [{key: value for key, value in client.items() if key not in MEASURED} for client in summary["clients"]]
    macs = {phase: spent["macs"] for phase, spent in summary["cost"].items()}
    return {key: value for key, value in summary.items() if key not in MEASURED} | {"clients": clients, "macs": macs}


def _words(folder: Path, method: str) -> tuple[str, ...]:
    return (f"method={method}", *ARGUMENTS, f"hydra.run.dir={folder}")


def _start(folder: Path, store: Path, method: str = "fedhydra") -> subprocess.Popen[bytes]:
    arguments = command(*_words(folder, method))
    return subprocess.Popen(
        arguments, env=environment(store), cwd=store.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def _result(folder: Path) -> tuple[dict, bytes]:
    summary = json.loads((folder / "summary.json").read_text())
    return comparable(summary), (folder / "server.safetensors").read_bytes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Callable[[str], tuple[dict, bytes]]:
    """What a method's run leaves that nothing stops."""

    @cache
    def result(method: str) -> tuple[dict, bytes]:
        root = tmp_path_factory.mktemp("unbroken")
        assert call(*_words(root / "run", method), cwd=root, tiny=False).returncode == 0
        return _result(root / "run")

    return result


def _when(moment: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 200
    while not moment():
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.002)


SIGNALS = {"clients": signal.SIGTERM, "stratify": signal.SIGINT, "distill": signal.SIGKILL}
"""What stops a run in each phase."""
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}
LINE = "oneshot_fl: interrupted; the same command resumes\n"


@pytest.mark.parametrize(
    "phase", ["clients", *(pytest.param(phase, marks=pytest.mark.slow) for phase in ("stratify", "distill"))]
)
def test_stopped_by_a_signal_and_started_again(phase, unbroken, tmp_path):
    store, number = tmp_path / "store", SIGNALS[phase]
    method = "fedavg" if phase == "clients" else "fedhydra"  # no more phases than one needs
    process = _start(tmp_path / "stopped", store, method)
    _when(lambda: MOMENTS[phase](store), process)
    process.send_signal(number)
    _, err = process.communicate(timeout=100)
    assert process.returncode == CODES[number], err.decode()
    status = json.loads((tmp_path / "stopped" / "run.json").read_text())["status"]
    assert (status, err.decode().endswith(LINE)) == (
        ("running", False) if number == signal.SIGKILL else ("interrupted", True)
    )
    assert b"Traceback" not in err
    assert not (tmp_path / "stopped" / "summary.json").exists()
    assert _finished(store, phase) < {"clients": 5, "stratify": 5, "distill": 1}[phase]
    finished = {path: path.stat().st_mtime_ns for path in store.glob("*/*/manifest.json")}
    assert call(*_words(tmp_path / "again", method), cwd=tmp_path, tiny=False).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "finished work was done again"
    assert _result(tmp_path / "again") == unbroken(method)
    assert not list(store.rglob("*.work"))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="nobody tells what a process has loaded")
@pytest.mark.parametrize("library", ["_yaml", "libtorch_cpu"])
def test_stopped_while_libraries_load(library, tmp_path):
    process = _start(tmp_path / "stopped", tmp_path / "store")
    _when(lambda: library in Path(f"/proc/{process.pid}/maps").read_text(), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert (process.returncode, err.decode()) == (130, LINE)
