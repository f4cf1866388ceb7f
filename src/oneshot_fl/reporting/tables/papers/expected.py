"""The papers' protocols: the experiments of their tables, composed."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from oneshot_fl.config.compose import choice, choices, composed, plain, unresolved
from oneshot_fl.config.record import compared
from oneshot_fl.reporting.tables.differences import Settings, flat


@dataclass(frozen=True)
class Expected:
    """All settings of a table's experiment on one data set by one method."""

    settings: Settings
    """Nested."""
    values: Settings
    """The same by dotted keys."""
    copies: dict[str, str]
    """Keys of the method that take the value of another key, `method.source.steps`, with that key."""


@cache
def expected(study: str, data: str, method: str) -> Expected:
    """What the experiment `study` sets, as its own command runs it."""
    cfg = composition(study, data, method)
    settings = compared(plain(cfg), unresolved(cfg))
    raw = flat({"method": unresolved(cfg.method)})
    copies = {key: str(value)[2:-1] for key, value in raw.items() if _is_copy(value)}
    return Expected(settings, flat(settings), copies)


@cache
def composition(study: str, data: str, method: str) -> Any:
    """The configuration of one run of a table; treat it as read-only."""
    return composed(f"experiment={study}", f"data={data}", f"method={method}")


def _is_copy(value: Any) -> bool:
    return bool(re.fullmatch(r"\$\{(?!method\.)[\w.]+\}", str(value)))


@cache
def architecture_settings(name: str) -> Settings:
    """What an architecture of that name is by itself, by dotted keys; nothing where there is none."""
    group = next((group for group in ("model", "cvae") if name in choices(group)), None)
    return flat(plain(choice(group, name))) if group else {}
