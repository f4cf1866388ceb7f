"""What a single run of a configuration that holds a sweep leaves out."""

from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from oneshot_fl.config.words import UNCOUNTED


def left_out(hydra: Any) -> str | None:
    """What to say of the sweep that a configuration holds and a single run ignores; None where it ignores nothing.

    Args:
        hydra: that part of the whole configuration of the run.
    """
    params = [f"{key}={value}" for key, value in (hydra.sweeper.get("params") or {}).items()]
    if not params:
        return None
    words = list(hydra.overrides.task)
    sweep, own = _parsed(params), {each.key_or_group for each in _parsed(words)}
    ignored = [each.key_or_group for each in sweep if each.key_or_group not in own]
    if not ignored:
        return None
    experiment = hydra.runtime.choices.get("experiment")
    who = "hydra.sweeper.params" if experiment is None else f"experiment={experiment}"
    count = _of_jobs([*params, *words]) if hydra.sweeper._target_.endswith(BasicSweeper.__name__) else ""
    return f"{who} is a sweep{count} over {', '.join(ignored)}, and this is a single run; add -m"


def _of_jobs(words: Sequence[str]) -> str:
    """How many jobs the same command has with `-m`; nothing where only files or a search tell."""
    overrides = _parsed(words)
    if any(each.value_type in UNCOUNTED for each in overrides):
        return ""
    jobs = sum(map(len, BasicSweeper.split_arguments(overrides, None)))
    return f" of {jobs} job{'s' * (jobs != 1)}"


def _parsed(words: Sequence[str]) -> list[Override]:
    overrides: list[Override] = OverridesParser.create().parse_overrides(list(words))
    return overrides
