"""Configuration: composed by Hydra, checked, and turned once into what the rest of the program works on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from oneshot_fl.experiment import Experiment


def experiment_of(cfg: "DictConfig") -> "Experiment":
    """The door: what a composed configuration means, or the line that says what is wrong with it.

    Raises:
        OneshotError: naming the first key that is wrong and what would be right.
    """
    from omegaconf.errors import OmegaConfBaseException

    from oneshot_fl.config.checks import check
    from oneshot_fl.config.explain import explain
    from oneshot_fl.errors import OneshotError

    try:
        check(cfg)
        from oneshot_fl.config.bind import bind  # torch loads only after the checks have passed

        return bind(cfg)
    except OmegaConfBaseException as error:  # an interpolation that cannot be resolved
        raise OneshotError(explain(error)) from error
