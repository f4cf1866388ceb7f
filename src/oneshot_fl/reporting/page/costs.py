"""What runs cost, as far as their summaries tell: seconds of every version, and the cost ledger where there is one."""

from collections.abc import Callable, Iterable
from typing import Any

Summary = dict[str, Any]
SERVER = ("stratify", "recite", "distill")
PHASES = ("clients", *SERVER)


def _seconds(phases: Iterable[str]) -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        seconds = summary.get("seconds") or {}
        known = [seconds[phase] for phase in phases if phase in seconds]
        return sum(known) if known else None

    return value


def _ledger(*fields: str, scale: float = 1.0, join: Callable[[list[float]], float] = sum) -> Callable[..., Any]:
    """A field of the ledger over the phases of a method, or the sum of several; None where a phase does not tell."""

    def value(summary: Summary) -> float | None:
        cost = summary.get("cost") or {}
        told = [cost[phase].get(name) for phase in PHASES if phase in cost for name in fields]
        return None if not told or None in told else join(told) / scale

    return value


def _uploaded(summary: Summary) -> float | None:
    known = [client["upload_bytes"] for client in summary["clients"] if client.get("upload_bytes") is not None]
    return sum(known) / 1e6 if known else None


COSTS: dict[str, Callable[[Summary], float | None]] = {
    "seconds, server": _seconds(SERVER),
    "seconds, clients and server": _seconds(PHASES),
    "CPU seconds": _ledger("cpu_seconds"),
    "multiply-accumulates (10⁹)": _ledger("macs", scale=1e9),
    "energy (kJ)": _ledger("cpu_joules", "gpu_joules", scale=1e3),
    "peak memory, host (MB)": _ledger("peak_host_bytes", scale=1e6, join=max),
    "peak memory, device (MB)": _ledger("peak_device_bytes", scale=1e6, join=max),
    "uploads of all clients (MB)": _uploaded,
}
"""By what they are called on the page; None where a summary does not tell."""
