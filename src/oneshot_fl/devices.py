"""Which devices this machine shows, and the lease of one of them: how parallel jobs share GPUs without a scheduler.

Nothing here loads torch, because CUDA reads its environment once, when it starts.
"""

import ctypes
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from oneshot_fl.errors import OneshotError
from oneshot_fl.process import say

VISIBLE = "CUDA_VISIBLE_DEVICES"
ASSIGNED = "ONESHOT_FL_DEVICE_ASSIGNED"
"""Set in a job's environment where the device is chosen: by this lease, or by an engine that deals them out, as Ray."""
NVIDIAS = ("libcuda.so.1", "libnvidia-ml.so.1")
"""CUDA's driver and NVIDIA's management library; a machine with neither has no GPU of theirs that could be used."""
UUID_BYTES = 96
"""What NVIDIA's management library asks for."""
NOT_INITIALIZED = 3
"""What CUDA's driver answers before it has started."""
LOOK_AGAIN = 0.5
"""Seconds between two looks for a device that has become free."""


def visible_devices() -> tuple[str, ...]:
    """The GPUs that CUDA would show this process, by the names that `CUDA_VISIBLE_DEVICES` takes."""
    chosen = os.environ.get(VISIBLE)
    if chosen is None:
        return tuple(map(str, range(len(_nvidia_devices()))))
    if not any(map(_is_there, NVIDIAS)):  # left over from another machine, or set for all of them
        return ()
    names = [name.strip() for name in chosen.split(",")]
    shown = names[: next((at for at, name in enumerate(names) if name in ("", "-1")), len(names))]
    return tuple(shown)  # CUDA stops at the first name that is none


def _is_there(library: str) -> bool:
    return _loaded(library) is not None


def _loaded(library: str) -> ctypes.CDLL | None:
    """A shared library; None where it cannot be loaded."""
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None


@cache
def _nvidia_devices() -> tuple[str, ...]:
    """The UUIDs of all devices, as NVIDIA's management library gives them; none where it is not there."""
    nvml = _loaded("libnvidia-ml.so.1")
    if nvml is None:
        return ()
    count = ctypes.c_uint(0)
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return ()
    names = tuple(_uuid(nvml, index) for index in range(count.value))
    nvml.nvmlShutdown()
    return names


def _uuid(nvml: ctypes.CDLL, index: int) -> str:
    """A device's UUID; its index where the library does not tell it."""
    device, name = ctypes.c_void_p(), ctypes.create_string_buffer(UUID_BYTES)
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0:
        return str(index)
    told = nvml.nvmlDeviceGetUUID(device, name, ctypes.c_uint(UUID_BYTES)) == 0
    return name.value.decode() if told else str(index)


def cpu_has_bf16(described: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this CPU multiplies bf16 numbers in hardware (AVX-512 or AMX); where nobody tells, it does not."""
    return described.is_file() and not {"avx512_bf16", "amx_bf16"}.isdisjoint(described.read_text().split())


def arithmetic_here(trainer: Mapping[str, Any]) -> str:
    """In a word how a Trainer of these settings computes on this machine: `cpu.bf16-mixed`, `cuda.32-true`.

    The same choices as `phases.trainer.precision_here` and Lightning's, found without loading either. A guess: whether
    torch can use a GPU that is visible, only torch knows.
    """
    device = device_here(str(trainer.get("accelerator")))
    precision = str(trainer.get("precision"))
    if precision == "auto":
        precision = "bf16-mixed" if device == "cpu" and cpu_has_bf16() else "32-true"
    return arithmetic(device, precision)


def arithmetic(device: str, precision: str) -> str:
    """The word for a kind of device and a Trainer's precision."""
    return f"{device}.{precision}"


def device_here(accelerator: str) -> str:
    """Which kind of device a Trainer's `accelerator` stands for on this machine: `cpu`, `cuda`, `mps`."""
    if accelerator not in ("auto", "gpu"):
        return accelerator
    if visible_devices():
        return "cuda"
    return "mps" if (sys.platform, platform.machine()) == ("darwin", "arm64") else "cpu"


@dataclass(frozen=True)
class Lease:
    """One device, for one of the jobs that it may have at once; a process that ends, however, gives it back."""

    device: str
    lock: FileLock

    def release(self) -> None:
        """Give it back."""
        self.lock.release()


_held: list[Lease] = []
"""This process's lease: CUDA is told of one device, once, so a worker that runs several jobs keeps it."""


def lease_device(
    accelerator: str, jobs_per_gpu: int, *, waiting: Callable[[str], None], folder: Path | None = None
) -> str:
    """Make one GPU the only one that this process will see; what it computes on: `cuda:3`, `cpu`.

    Nothing is leased where no GPU will be used, where CUDA has started already, which is said if there was a choice,
    and where a launcher's engine has chosen. Of what Slurm has chosen, `CUDA_VISIBLE_DEVICES`, one is leased.

    Args:
        accelerator: `trainer.accelerator`.
        jobs_per_gpu: how many jobs share a device.
        waiting: called once, with what is waited for, where every device has its jobs.
        folder: for the lock files; by default one of this user, on this machine, of this Slurm job.
    """
    if accelerator in ("cpu", "mps"):
        return accelerator
    if not (devices := visible_devices()):
        return device_here(accelerator)
    if not _held and (ASSIGNED in os.environ or _cuda_has_started()):
        if ASSIGNED not in os.environ and len(devices) > 1:
            say(f"CUDA has started in this process before: GPU {devices[0]} is used, whatever other jobs it has")
        return f"cuda:{','.join(devices)}"
    if not _held:
        _held.append(wait_for_device(devices, jobs_per_gpu, folder or _lock_folder(), waiting))
        os.environ |= {VISIBLE: _held[0].device, ASSIGNED: "1"}  # also for processes that this one starts
    return f"cuda:{_held[0].device}"


def _cuda_has_started() -> bool:
    """Whether this process's CUDA has read its environment, as it does for the first that asks it anything.

    Its driver is asked and not torch, which counts devices without saying later that CUDA has started.
    """
    if "torch" not in sys.modules:
        return False
    driver = _loaded("libcuda.so.1")
    return driver is not None and bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != NOT_INITIALIZED)


def wait_for_device(devices: Sequence[str], jobs_per_gpu: int, folder: Path, waiting: Callable[[str], None]) -> Lease:
    """The lease of a device as soon as one has room for another job."""
    told = False
    while (lease := free_device(devices, jobs_per_gpu, folder)) is None:
        if not told:
            waiting(
                f"all GPUs ({', '.join(devices)}) have their trainer.jobs_per_gpu={jobs_per_gpu} jobs of mine; waiting "
                "for one of these to end"
            )
        told = True
        time.sleep(LOOK_AGAIN)
    return lease


def free_device(devices: Sequence[str], jobs_per_gpu: int, folder: Path) -> Lease | None:
    """The lease of the device with the fewest jobs, the first of several; None where all have theirs.

    A device gets no more jobs than each of those on it allows.

    Raises:
        OneshotError: the folder of locks cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "choosing.lock"):
            files = dict(zip(devices, _file_names(devices), strict=True))
            allowed = {device: _allowed_by_jobs_on(file, folder) for device, file in files.items()}
            free = [device for device, by in allowed.items() if len(by) < min([jobs_per_gpu, *by])]
            if not free:
                return None
            device = min(free, key=lambda device: len(allowed[device]))
            return _leased(device, files[device], jobs_per_gpu, folder)
    except OSError as error:
        raise OneshotError(
            f"{folder}: cannot hold the locks of GPUs ({error.strerror}); set TMPDIR to a folder that can"
        ) from error


def _leased(device: str, file: str, jobs_per_gpu: int, folder: Path) -> Lease:
    """The lease of a device that has room; the file's name tells others how many jobs this one allows there."""
    places = (folder / f"{file}.{slot}-of-{jobs_per_gpu}.lock" for slot in range(jobs_per_gpu))
    return next(Lease(device, lock) for place in places if (lock := _taken(place)))


def _allowed_by_jobs_on(file: str, folder: Path) -> list[int]:
    """Of each job on a device whose files begin like this, how many it allows there."""
    found = []
    for place in folder.glob(f"{file}.*-of-*.lock"):
        if lock := _taken(place):
            lock.release()
        else:
            found.append(int(place.stem.rpartition("-")[2]))
    return found


def _taken(place: Path) -> FileLock | None:
    """A lock that is held from now on; None where somebody holds it."""
    lock = FileLock(place)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def _file_names(devices: Sequence[str]) -> list[str]:
    """How the lock files of devices begin: with the UUID, whether a device is named by its index or by its UUID.

    What is no whole device of this machine, as a part of one (`MIG-...`), keeps its name. Where GPUs are unlike, CUDA
    numbers them as the library does only under `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    """
    known = _nvidia_devices()
    return [_uuid_among(known, device).replace("/", "_") for device in devices]


def _uuid_among(known: Sequence[str], device: str) -> str:
    if device.isdecimal():
        return known[int(device)] if int(device) < len(known) else device
    alike = [uuid for uuid in known if device.startswith("GPU-") and uuid.startswith(device)]
    return alike[0] if len(alike) == 1 else device


def _lock_folder() -> Path:
    """Slurm may call different devices by one name in different jobs, so each of its jobs has a folder of its own."""
    scope = os.environ.get("SLURM_JOB_ID", "devices")
    return Path(tempfile.gettempdir(), f"oneshot_fl-{os.getuid()}", scope)
