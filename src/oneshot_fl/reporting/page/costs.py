"""What runs cost, as far as their summaries tell: seconds of every version, and the cost ledger where there is one."""

from collections.abc import Callable, Iterable
from typing import Any

from oneshot_fl.reporting.tables.cost import COLUMNS, PHASES, Ledger

Summary = dict[str, Any]
SERVER = ("stratify", "recite", "distill")


def _seconds(phases: Iterable[str]) -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        seconds = summary.get("seconds") or {}
        known = [seconds[phase] for phase in phases if phase in seconds]
        return sum(known) if known else None

    return value


def _of_ledger(column: Callable[[Ledger], float | None]) -> Callable[[Summary], float | None]:
    return lambda summary: column(summary["cost"]) if summary.get("cost") else None


OF_PHASES = tuple(f"{phase}, s" for phase in PHASES)
COSTS: dict[str, Callable[[Summary], float | None]] = {
    "server, s": _seconds(SERVER),
    "clients and server, s": _seconds(("clients", *SERVER)),
    **{name: _of_ledger(column) for name, column in COLUMNS.items() if name not in OF_PHASES},
}
"""By what they are called on the page; None where a summary does not tell."""
