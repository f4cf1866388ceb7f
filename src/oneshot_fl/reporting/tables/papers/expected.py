"""The papers' protocols: the experiments of their tables, composed."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config.compose import choices, composed, plain
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
    settings = compared(plain(cfg), cfg.seed)
    raw = flat({"method": OmegaConf.to_container(cfg.method)})
    copies = {key: str(value)[2:-1] for key, value in raw.items() if _is_copy(value)}
    return Expected(settings, flat(settings), copies)


@cache
def composition(study: str, data: str, method: str) -> DictConfig:
    """The configuration of one run of a table; treat it as read-only."""
    return composed(f"experiment={study}", f"data={data}", f"method={method}")


def _is_copy(value: Any) -> bool:
    return bool(re.fullmatch(r"\$\{(?!method\.)[\w.]+\}", str(value)))


@cache
def architecture_settings(name: str) -> Settings:
    """What an architecture of that name is by itself, by dotted keys; nothing where there is none."""
    found = next((known[name] for known in map(choices, ("model", "cvae")) if name in known), None)
    return flat(plain(OmegaConf.load(found))) if found else {}
