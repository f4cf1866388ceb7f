"""Energy, where the machine tells: Intel's and AMD's RAPL counters through Linux, NVIDIA's through NVML.

Both count what the whole package or board draws, whoever uses it. RAPL's files are often readable by root alone; NVML
asks for `nvidia-ml-py` (`pip install 'oneshot-fl[energy]'`). Where nobody tells, nothing is estimated.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

POWERCAP = Path("/sys/class/powercap")
MOST_WATTS = 1000.0
"""That a package is taken to draw at the most: after a longer silence its counter may have gone round unseen."""
OFTEN = 15.0
"""Seconds after which the packages are read again meanwhile: at `MOST_WATTS` most go round in 65 s or 262 s."""


@dataclass(frozen=True)
class Reading:
    """What all packages have drawn since they were first asked, as far as that was seen."""

    joules: float
    gaps: int
    """How often they were silent for so long that what they drew meanwhile is missing."""


class CpuEnergy:
    """The joules of all processor packages, from counters that go round; threads may share it."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        zones = sorted(powercap.glob("intel-rapl:[0-9]"))  # deeper ones are parts of these; AMD's have that name
        self._packages = [zone for zone in zones if _is_package(zone)]
        self._last: list[tuple[float, int]] | None = None
        self._read = Reading(0.0, 0)
        self._lock = Lock()

    def read(self) -> Reading | None:
        """So far; None where the machine does not tell. Whoever measures for long has it read every `OFTEN` seconds."""
        if not self._packages:
            return None
        with self._lock, suppress(OSError):
            now = [(time.monotonic(), int((each / "energy_uj").read_text())) for each in self._packages]
            ranges = [int((each / "max_energy_range_uj").read_text()) for each in self._packages]
            pairs = zip(self._last or now, now, ranges, strict=True)
            self._read = _after(self._read, [_step(*before, *after, around) for before, after, around in pairs])
            self._last = now
            return self._read
        return None

    def since(self, before: Reading | None) -> float | None:
        """Joules since a reading; None where the machine does not tell, or was not asked often enough since then."""
        now = self.read()
        if before is None or now is None or now.gaps > before.gaps:
            return None
        return now.joules - before.joules


def _after(read: Reading, steps: Sequence[float | None]) -> Reading:
    """A reading and the joules of each package since then."""
    known = [step for step in steps if step is not None]
    return Reading(read.joules + sum(known), read.gaps + (len(known) < len(steps)))


def _is_package(zone: Path) -> bool:
    """The platform (`psys`) lies beside the packages and counts them again."""
    try:
        return (zone / "name").read_text().startswith("package")
    except OSError:
        return False


def _step(then: float, before: int, now: float, after: int, around: int) -> float | None:
    """Joules between two readings in microjoules of a counter that goes round at `around`; None: perhaps often."""
    if (now - then) * MOST_WATTS * 1e6 > around:
        return None
    return ((after - before) % (around + 1)) / 1e6


def gpu_in_use() -> bool:
    """Whether this process has begun to use an NVIDIA board; asking does not begin it."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def gpu_joules() -> float | None:
    """What the board in use has drawn since its driver began; None where none is in use yet, or nobody tells."""
    if not gpu_in_use():
        return None
    torch = sys.modules["torch"]
    return _read(_board(str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)))


def _read(board: Any) -> float | None:
    if board is None:
        return None
    import pynvml

    try:
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(board) / 1000
    except pynvml.NVMLError:  # a board without the counter
        return None


@cache
def _board(uuid: str) -> Any:
    """NVML's handle of a board; None without NVML."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    except pynvml.NVMLError:
        return None
