import io
import re
import threading
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from oneshot_fl import ledger
from oneshot_fl.config import experiment_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.session import arithmetic, session
from tests.composing import compose_config
from tests.parts import CPU


@pytest.mark.parametrize(
    "changes", [{"precision": "bf16-mixed"}, {"channels_last": False}, {"matmul_precision": "high"}]
)
def test_whatever_changes_how_numbers_are_computed_is_in_every_key(changes):
    assert arithmetic(CPU) == arithmetic(replace(CPU))
    assert arithmetic(replace(CPU, **changes)) != arithmetic(CPU)
    assert arithmetic(CPU)["torch"] == torch.__version__


def test_so_are_graphs_where_there_can_be_any(monkeypatch):
    without = replace(CPU, cuda_graphs=False)
    assert arithmetic(without) == arithmetic(CPU)
    monkeypatch.setattr("oneshot_fl.session.device_of", lambda _: torch.device("cuda"))
    assert arithmetic(without) != arithmetic(CPU)


def _plan(folder):
    return experiment_of(compose_config("trainer=cpu", f"store={folder / 'store'}"))


def _fail_in_the_middle(folder, closed):
    with session(_plan(folder), folder, Console(quiet=True)) as context:
        context.log.sinks[0].close = lambda *, failed: closed.append(failed)
        context.log.log({"distill/accuracy": 0.5}, 1)
        raise RuntimeError("in the middle")


def test_a_device_that_is_full_is_one_line_with_the_settings_that_need_less(tmp_path):
    with (
        pytest.raises(OneshotError, match=r"^the device has too little memory \(Tried to allocate .*clients_at_once"),
        session(_plan(tmp_path), tmp_path / "run", Console(quiet=True)),
    ):
        raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB.\nMore lines.")


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "MPS backend out of memory (MPS allocated: 17.00 GB)",
        "[enforce fail at alloc_cpu.cpp:130] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    ],
)
def test_a_device_that_is_full_is_one_line_whoever_found_it_so(tmp_path, words):
    with (
        pytest.raises(
            OneshotError, match=rf"^the device has too little memory \({re.escape(words)}\); lower distill\."
        ),
        session(_plan(tmp_path), tmp_path / "run", Console(quiet=True)),
    ):
        raise RuntimeError(words)


@pytest.mark.parametrize(
    ("accelerator", "shown", "used", "told"),
    [("auto", ("0",), "cpu", 1), ("cpu", ("0",), "cpu", 0), ("auto", (), "cpu", 0), ("auto", ("0",), "mps", 0)],
)
def test_a_gpu_that_torch_cannot_use_is_told_of(tmp_path, monkeypatch, accelerator, shown, used, told):
    def refuse():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).")

    monkeypatch.setattr("oneshot_fl.session.visible_devices", lambda: shown)
    monkeypatch.setattr("oneshot_fl.session.device_of", lambda _: torch.device(used))
    monkeypatch.setattr(torch.cuda, "init", refuse)
    plan, console = _plan(tmp_path), Console(record=True, width=500, file=io.StringIO())
    with session(replace(plan, trainer=replace(plan.trainer, accelerator=accelerator)), tmp_path, console):
        pass
    line = "this machine shows a GPU that torch cannot use (The NVIDIA driver on your system is too old"
    assert console.export_text().count(line) == told


def test_loggers_are_closed_also_where_a_run_fails(tmp_path):
    closed = []
    with pytest.raises(RuntimeError, match="in the middle"):
        _fail_in_the_middle(tmp_path, closed)
    assert closed == [True]
    assert (tmp_path / "metrics.csv").exists()


@pytest.mark.parametrize(("device", "expected"), [("cuda", 7.0), ("cpu", 0.0)])
def test_the_first_phase_of_a_run_knows_the_energy_of_its_gpu(tmp_path, monkeypatch, device, expected):
    started, told = [], iter([5.0, 12.0])
    monkeypatch.setattr("oneshot_fl.session.device_of", lambda settings: torch.device(device))
    monkeypatch.setattr(torch.cuda, "init", lambda: started.append("CUDA"))
    monkeypatch.setattr(ledger, "gpu_in_use", lambda: bool(started))
    monkeypatch.setattr(ledger, "gpu_joules", lambda: next(told) if started else None)
    for peak in ("reset_peak_memory_stats", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, peak, lambda: 0)
    with session(_plan(tmp_path), tmp_path, Console(quiet=True)):
        meter = ledger.Meter()
        assert meter.spent().gpu_joules == expected
    assert started == ["CUDA"] * (device == "cuda")


def test_the_energy_of_the_processor_is_read_all_along_so_that_long_phases_know_theirs(tmp_path, monkeypatch):
    read = threading.Event()
    monkeypatch.setattr("oneshot_fl.session.OFTEN", 0.01)
    monkeypatch.setattr(ledger.CPU_ENERGY, "read", read.set)
    with session(_plan(tmp_path), tmp_path, Console(quiet=True)):
        assert read.wait(60)


def test_what_an_earlier_run_logged_does_not_stay_beside_one_that_logs_nothing(tmp_path):
    events = tmp_path / "tensorboard" / "events.out.tfevents.1"
    events.parent.mkdir()
    for path in (tmp_path / "metrics.csv", events):
        path.write_text("of another run")
    with session(replace(_plan(tmp_path), loggers=()), tmp_path, Console(quiet=True)) as context:
        context.log.log({"distill/accuracy": 0.5}, 1)
    assert not (tmp_path / "metrics.csv").exists()
    assert not events.exists()


def test_a_logger_that_cannot_be_opened_is_one_line(tmp_path):
    def missing(**told):
        raise ModuleNotFoundError("no such thing")

    plan = _plan(tmp_path)
    several = replace(plan, loggers=(*plan.loggers, replace(plan.loggers[0], make=missing)))
    opening = session(several, tmp_path, Console(quiet=True))
    with pytest.raises(OneshotError, match="needs another package"):
        opening.__enter__()
