"""What every run is opened with: the store, progress on the terminal, and loggers, closed whatever happens."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oneshot_fl.devices import visible_devices
from oneshot_fl.energy import OFTEN
from oneshot_fl.errors import OneshotError, one_line, says_out_of_memory
from oneshot_fl.experiment import Serving
from oneshot_fl.ledger import CPU_ENERGY
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.trainer import TrainerSettings, device_of
from oneshot_fl.process import again_and_again
from oneshot_fl.reporting.about import about
from oneshot_fl.reporting.earlier import remove_logged
from oneshot_fl.store import open_store
from oneshot_fl.tracking.loggers import RunLog, opened
from oneshot_fl.tracking.progress import Progress, terminal


@contextmanager
def session(plan: Serving, folder: Path, console: Console, *, of: str = "") -> Iterator[Context]:
    """The context of a run of this plan in `folder`, while the block runs; what an earlier run logged there is removed.

    Args:
        of: key of what it works on, where that is not in the plan.

    Raises:
        OneshotError: the store cannot be written, that cannot be removed, a logger cannot be opened, or the device's
            memory is too small for what the block does.
    """
    store, known = open_store(plan.store, arithmetic(plan.trainer)), about(plan, folder, of=of)
    remove_logged(folder)
    with RunLog([]) as log, Progress(console, folder) as progress, again_and_again(CPU_ENERGY.read, OFTEN):
        log.sinks += (opened(each.make, each.settings, known) for each in plan.loggers)
        _start(device := device_of(plan.trainer))
        if plan.trainer.accelerator == "auto" and device.type == "cpu" and visible_devices():
            progress.note(_unusable_gpu())
        with _shortage_told():
            yield Context(store, plan.trainer, progress, log, plan.workers)


@contextmanager
def unlogged(plan: Serving, notes: Iterable[str], *, workers: int = 1) -> Iterator[Context]:
    """The context of clients that train outside of a run, once these notes are told: no logger, and no folder.

    Raises:
        OneshotError: the store cannot be written.
    """
    with Progress(terminal()) as progress:
        for note in notes:
            progress.note(note)
        store = open_store(plan.store, arithmetic(plan.trainer))
        yield Context(store, plan.trainer, progress, RunLog([]), workers)


@contextmanager
def _shortage_told() -> Iterator[None]:
    """A device that is full is one line: what was done is in the store, and settings can make do with less."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and not says_out_of_memory(error):
            raise
        raise OneshotError(
            f"the device has too little memory ({one_line(error)}); lower distill.clients_at_once, "
            "stratify.classes_at_once or a batch_size, keep pixels as bytes (method.pool.uint8=true), give every job "
            "a device of its own (trainer.jobs_per_gpu=1), or do without graphs (trainer.cuda_graphs=false); the same "
            "command goes on from what was done"
        ) from error


def _start(device: torch.device) -> None:
    """Begin to use a GPU before the first phase is measured: only then does the board tell its energy (`energy`)."""
    if device.type == "cuda":
        torch.cuda.init()


def _unusable_gpu() -> str:
    """What to say where a GPU is visible and `auto` is the CPU all the same, because torch cannot use it."""
    try:
        torch.cuda.init()
        reason = "CUDA starts and shows it none"
    except (RuntimeError, AssertionError) as error:  # the latter of a torch that was built without CUDA
        reason = one_line(error)
    return (
        f"this machine shows a GPU that torch cannot use ({reason}); computed on the CPU: install a torch for its "
        "driver, or set trainer=cpu"
    )


def arithmetic(trainer: TrainerSettings) -> dict[str, Any]:
    """What every result depends on besides its own inputs: the library and how it computes here."""
    device = device_of(trainer).type
    return {
        "torch": torch.__version__,
        "device": device,
        "precision": trainer.precision,
        "channels_last": trainer.channels_last,
        "matmul_precision": trainer.matmul_precision,
        "cuda_graphs": trainer.cuda_graphs and device == "cuda",
    }
