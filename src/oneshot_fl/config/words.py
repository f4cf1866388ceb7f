"""The words of a command before they are composed: what Hydra would take and nobody means."""

from collections.abc import Iterable, Sequence
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, Transformer, ValueType
from hydra.errors import HydraException

from oneshot_fl.config.compose import is_of_jobs
from oneshot_fl.config.keys import groups
from oneshot_fl.errors import OneshotError

OF_LISTS = ("logger",)
"""Groups whose choices stand side by side; of all others the last one of a list would win."""
UNCOUNTED = (ValueType.GLOB_CHOICE_SWEEP, ValueType.INTERVAL_SWEEP)
"""Sweeps whose values are not in the word: only files or a search tell them."""


def together(words: Sequence[str]) -> list[str]:
    """The same command with its overrides in one row, where Hydra takes them: it takes none on both sides of an option.

    Hydra's own parser tells which words are an option's (`--config-dir X`). What it takes as it stands is left alone,
    and what is wrong with an option is said by it.
    """
    taken, left = get_args_parser().parse_known_args(list(words))
    behind = [word for word in left if not word.startswith("-")]
    if not behind:
        return list(words)
    overrides = [*taken.overrides, *behind]
    return [*overrides, *(word for word in words if word not in overrides)]


def overrides_of(words: Sequence[str]) -> list[str]:
    """The overrides of a command that Hydra takes: no options, and not what stands behind one."""
    return list(_taken(words).overrides)


def reading(words: Sequence[str]) -> list[str]:
    """The words that say where a command's configuration is read from, and beside which variables.

    Each of its jobs on its own needs them too. Options come first: Hydra takes no overrides on both sides of one.
    """
    taken = _taken(words)
    told = {"--config-path": taken.config_path, "--config-name": taken.config_name, "--config-dir": taken.config_dir}
    options = [f"{option}={value}" for option, value in told.items() if value is not None]
    return [*options, *(word for word in taken.overrides if key_of(word) == "hydra.searchpath" or is_of_jobs(word))]


def folders_beside(words: Sequence[str]) -> list[str]:
    """The folders beside ours in which a command's choices are looked for, as far as they lie on a disk."""
    taken = _taken(words)
    searched = [_read(word) for word in taken.overrides if key_of(word) == "hydra.searchpath"]
    places = [place for override in searched if override for place in _listed(override.value())]
    return [place.removeprefix("file://") for place in (taken.config_dir, *places) if place]


def _taken(words: Sequence[str]) -> Any:
    """What Hydra's own parser takes of a command, by its names."""
    return get_args_parser().parse_known_args(list(words))[0]


def check_words(words: Iterable[str]) -> None:
    """Refuse lists of choices; what is no override, or cannot be read as one, is left to others.

    Raises:
        OneshotError: a group that takes one choice is given a list.
    """
    for word in words:
        override = _read(word)
        if override is not None and (listed := _listed(override.value())) and _takes_one(override.key_or_group):
            raise OneshotError(_one_of(word, override.key_or_group, listed))


def check_no_hydras(words: Iterable[str]) -> None:
    """Refuse settings of Hydra's own, which are of its command line; where choices lie beside ours may be said.

    Raises:
        OneshotError: there is one.
    """
    for word in words:
        if group_of(word) == "hydra" and not word.startswith("hydra.searchpath="):
            raise OneshotError(
                f"{word}: has no place here: Hydra's settings are of the command line (python -m oneshot_fl); a run's "
                "folder is folder=DIR"
            )


def group_of(word: str) -> str:
    """The group or key at the top of the configuration that an override is about: `+evaluate.privacy=null`."""
    return key_of(word).replace("/", ".").replace("@", ".").partition(".")[0]


def key_of(word: str) -> str:
    """What an override names, as it is typed: `evaluate.privacy` of `+evaluate.privacy=null`."""
    return word.lstrip("+~").partition("=")[0]


def values_of(word: str) -> tuple[str, list[Any]] | None:
    """An override's key and its values, several if it is a sweep's: `seed` and `[0, 1]` of `seed=0,1`.

    None if it is no override, cannot be read as one, or says no values: `method=glob(*)`, `seed=interval(0,1)`.
    """
    override = _read(word)
    if override is None or override.value_type in UNCOUNTED:
        return None
    if not override.is_sweep_override():
        return override.key_or_group, [override.value()]
    return override.key_or_group, list(override.sweep_iterator(Transformer.identity))


def value_for(key: str, words: Iterable[str]) -> Any:
    """The value that the last override of a key gives it; None where none does."""
    given = [found[1][-1] for word in words if key_of(word) == key and (found := values_of(word))]
    return given[-1] if given else None


def _read(word: str) -> Override | None:
    if word.startswith("-") or "=" not in word:
        return None
    try:
        override: Override = OverridesParser.create().parse_override(word)
    except HydraException:
        return None
    return override


def _listed(value: Any) -> list[str]:
    """What a list holds, or those in a sweep."""
    inside = value.list if isinstance(value, ChoiceSweep) else [value]
    return [str(name) for each in inside if isinstance(each, list) for name in each]


def _takes_one(group: str) -> bool:
    return group in groups() and not group.startswith(("hydra/", *OF_LISTS))


def _one_of(word: str, group: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"{word}: {group} takes one choice, not a list; write {group}={names[0]}"
    mixed = f"; for clients of several models model=mixed 'model.names=[{','.join(names)}]'" if group == "model" else ""
    return f"{word}: {group} takes one choice, not a list; for a sweep write -m {group}={','.join(names)}{mixed}"
