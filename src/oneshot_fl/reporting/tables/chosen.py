"""What a run was made with, by the words of a command line.

`--where KEY=VALUE` chooses runs by it, `--across KEY` compares runs that differ in it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from oneshot_fl.config.words import values_of
from oneshot_fl.errors import OneshotError, did_you_mean
from oneshot_fl.process import say
from oneshot_fl.reporting.tables.alike import identity
from oneshot_fl.reporting.tables.differences import at, canonical, without
from oneshot_fl.reporting.tables.run import Run

FACTS: dict[str, Callable[[Run], Any]] = {
    "method": lambda run: run.method,
    "data": lambda run: run.data,
    "budget": lambda run: run.budget,
    "study": lambda run: run.study,
    "seed": lambda run: run.seed,
    "model": lambda run: run.architectures,
    "server_model": lambda run: run.models["server"],
    "partition": lambda run: run.split,
}
"""What is told by one word; a partition by its name and how uneven it is, `dirichlet 0.1`."""


def value_of(run: Run, key: str) -> Any:
    """One of `FACTS`, or the setting with this dotted key; None where the run has none."""
    return FACTS[key](run) if key in FACTS else run.setting(key)


def is_told(run: Run, key: str) -> bool:
    """Whether a run has this setting and its method uses it."""
    return key in FACTS or any(at(settings, key) is not None for settings in (run.own, run.shared))


def check_key(option: str, key: str, runs: Iterable[Run]) -> None:
    """A key has to be one of `FACTS`, or set in some run.

    Raises:
        OneshotError: it is not, with the nearest that is.
    """
    known = dict.fromkeys([*FACTS, *(own for run in runs for own in run.flat)])
    if key not in known:
        raise OneshotError(f"{option}: no run has a setting {key}{did_you_mean(key, known)}")


def runs_with(runs: Sequence[Run], choices: Sequence[str]) -> list[Run]:
    """The runs that have one of the values of every choice, `KEY=VALUE` or `KEY=VALUE,VALUE`.

    A run that failed before its settings were known has none of them.

    Raises:
        OneshotError: a choice is not of this form, its key is none, or no run that has those before it has it.
    """
    chosen = [run for run in runs if run.settings] if choices else list(runs)
    for choice in choices:
        chosen = _with(chosen, choice)
    return chosen


def _with(runs: Sequence[Run], choice: str) -> list[Run]:
    parsed = values_of(choice)
    if parsed is None:
        raise OneshotError(f"--where {choice}: is no KEY=VALUE like distill.rounds=25")
    key, values = parsed
    check_key(f"--where {choice}", key, runs)
    wanted = {canonical(value) for value in values}
    chosen = [run for run in runs if wanted & {canonical(value) for value in _all_of(run, key)}]
    if not chosen:
        there = dict.fromkeys(str(value) for run in runs for value in _all_of(run, key))
        raise OneshotError(f"--where {choice}: no run has that; of {key} there are {', '.join(there)}")
    return chosen


def _all_of(run: Run, key: str) -> list[Any]:
    """A run is of every study that it stands for, and has one value of everything else."""
    return list(run.all_studies) if key == "study" else [value_of(run, key)]


def across(runs: Sequence[Run], keys: Sequence[str]) -> list[Run]:
    """Runs without the settings `keys`, so that those that differ in nothing else are compared.

    Raises:
        OneshotError: a key is one of `FACTS`, which say what is compared, or set in no run.
    """
    pooled = list(runs)
    for key in keys:
        if key in FACTS:
            raise OneshotError(f"--across {key}: says what is compared; must be a setting, like trainer.accelerator")
        check_key(f"--across {key}", key, pooled)
        pooled = [replace(run, settings=without(run.settings, key)) for run in pooled]
    if keys and (more := len(set(map(identity, runs))) - len(set(map(identity, pooled)))):
        say(f"{more} runs differ from another only in {', '.join(keys)}; of these the newer counts")
    return pooled
