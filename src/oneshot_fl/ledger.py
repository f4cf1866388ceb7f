"""What work costs: seconds, CPU-seconds, peak memory and energy are measured, multiply-accumulates are counted."""

import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

from oneshot_fl.energy import CpuEnergy, gpu_in_use, gpu_joules

RESET_PEAK, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
"""Linux alone lets a process begin its peak memory anew; elsewhere it is the peak since the process began."""


@dataclass(frozen=True)
class Cost:
    """What something took; None: not known."""

    seconds: float = 0.0
    """Wall time."""
    cpu_seconds: float | None = 0.0
    """Of all threads of this process, without its child processes: workers tell their own."""
    peak_host_bytes: int | None = 0
    """Highest resident memory of the process meanwhile, with what it held before."""
    peak_device_bytes: int | None = 0
    """Highest memory that tensors took on the accelerator meanwhile; 0 where there is none."""
    cpu_joules: float | None = 0.0
    """Of all processor packages of the machine, with whatever else ran on them."""
    gpu_joules: float | None = 0.0
    """Of the accelerator, likewise."""
    macs: int | None = 0
    """Multiply-accumulates of models' forward and backward passes."""


NOTHING = Cost()


def total(costs: Iterable[Cost]) -> Cost:
    """All of them after one another: sums, and the highest of the peaks; with one unknown part it is unknown."""
    found: dict[str, Any] = asdict(NOTHING)
    for cost in costs:
        for name, value in asdict(cost).items():
            found[name] = _joined(name, found[name], value)
    return Cost(**found)


def _joined(name: str, before: Any, value: Any) -> Any:
    if before is None or value is None:
        return None
    return max(before, value) if name.startswith("peak") else before + value


def cost_of(told: Mapping[str, Any]) -> Cost:
    """A cost from what `asdict` made of it; what an earlier version did not tell is unknown."""
    return Cost(**{**dict.fromkeys(asdict(NOTHING)), **told})


class Meter:
    """Measures what this process spends from now on. Meters may overlap: each has a peak of its own."""

    def __init__(self) -> None:
        _note_peaks()
        _begin_peaks()
        self.peaks = (0, 0)
        _OPEN.add(self)
        self._energy = (None, None) if _BESIDE_OTHERS.get() else (CPU_ENERGY.read(), gpu_joules())
        self._seconds, self._cpu_seconds = time.perf_counter(), time.process_time()

    def spent(self, *, macs: int = 0) -> Cost:
        """Since it was made, with the multiply-accumulates that somebody counted meanwhile."""
        seconds = time.perf_counter() - self._seconds
        _note_peaks()
        before_cpu, before_gpu = self._energy
        return Cost(
            seconds=seconds,
            cpu_seconds=time.process_time() - self._cpu_seconds,
            peak_host_bytes=self.peaks[0],
            peak_device_bytes=self.peaks[1],
            cpu_joules=CPU_ENERGY.since(before_cpu),
            gpu_joules=_since(before_gpu, gpu_joules()) if gpu_in_use() else 0.0,
            macs=macs,
        )


_OPEN: WeakSet[Meter] = WeakSet()
CPU_ENERGY = CpuEnergy()
_BESIDE_OTHERS = ContextVar("beside others", default=False)


@contextmanager
def beside_others() -> Iterator[None]:
    """Of a meter that begins inside the block it is not known what was drawn.

    For processes that work side by side: the machine's counters have the others in them, and each would count all.
    """
    before = _BESIDE_OTHERS.set(True)
    try:
        yield
    finally:
        _BESIDE_OTHERS.reset(before)


def _since(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else now - before


def _note_peaks() -> None:
    """Tell every meter the peaks since they were begun anew."""
    host, device = _host_peak(), _device_peak()
    for meter in _OPEN:
        meter.peaks = max(meter.peaks[0], host), max(meter.peaks[1], device)


def _begin_peaks() -> None:
    with suppress(OSError):  # macOS, or a sandbox: peaks are then those since the process began
        RESET_PEAK.write_text("5")
    if gpu_in_use():
        sys.modules["torch"].cuda.reset_peak_memory_stats()


def _host_peak() -> int:
    """Bytes."""
    try:
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024  # getrusage counts bytes there and KiB elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(line.split()[1]) * 1024


def _device_peak() -> int:
    return int(sys.modules["torch"].cuda.max_memory_allocated()) if gpu_in_use() else 0
