"""Configuration: composed by Hydra, checked, and turned once into what the rest of the program works on."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from oneshot_fl.experiment import Experiment


def experiment_of(cfg: "DictConfig") -> "Experiment":
    """The door: what a composed configuration means, or the line that says what is wrong with it.

    Raises:
        OneshotError: naming the first key that is wrong and what would be right.
    """
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from oneshot_fl.config.checks import check
    from oneshot_fl.config.explain import explain
    from oneshot_fl.errors import OneshotError

    try:
        check(cfg)
        from oneshot_fl.config.bind import bind  # torch loads only after the checks have passed

        return bind(cfg)
    except (OmegaConfBaseException, YAMLError) as error:  # a reference to nothing; a file that is being edited
        raise OneshotError(explain(error)) from error


def resolved(cfg: "DictConfig") -> dict[str, Any] | None:
    """The whole configuration as built-in containers; None where a value refers to nothing, which the door says."""
    from omegaconf.errors import OmegaConfBaseException

    from oneshot_fl.config.compose import plain

    try:
        config: dict[str, Any] = plain(cfg)
    except (OmegaConfBaseException, RecursionError):
        return None
    return config


def from_overrides(*overrides: str) -> "tuple[Callable[[], Experiment], dict[str, Any], dict[str, Any] | None]":
    """What makes the experiment of some overrides, what can be told of it before, and its settings: what a job takes.

    Raises:
        OneshotError: the overrides cannot be composed, or choose what a file of the user's own is called too.
    """
    from oneshot_fl.config.compose import method_of, without_hydras
    from oneshot_fl.config.explain import whole_of
    from oneshot_fl.config.record import choices
    from oneshot_fl.config.single import left_out
    from oneshot_fl.config.words import check_no_hydras, check_words
    from oneshot_fl.process import say

    check_words(overrides)
    check_no_hydras(overrides)
    whole = whole_of(overrides)
    if ignored := left_out(whole.hydra):
        say(ignored)
    method, cfg = method_of(whole), without_hydras(whole)
    return partial(_as_chosen, cfg, method), {**choices(cfg), "overrides": list(overrides)}, resolved(cfg)


def _as_chosen(cfg: "DictConfig", method: str) -> "Experiment":
    from oneshot_fl.config.compose import having_chosen

    with having_chosen(method):
        return experiment_of(cfg)
