"""Settings of local training that nobody would train by."""

from omegaconf import DictConfig

from oneshot_fl.config.clients import GROUPS, client_nodes, kinds
from oneshot_fl.config.compose import choice, choices, unresolved
from oneshot_fl.errors import OneshotError, did_you_mean
from oneshot_fl.fits import problem, shown
from oneshot_fl.values import TorchvisionName

IDLE = {"augmentation": "none", "sam": None}
"""Settings that change how a classifier is trained and no VAE, with the value that changes nothing."""


def check_rates(cfg: DictConfig) -> None:
    """Whether the names in `clients.lr_of` are such as architectures have: a client's, or another's of a sweep.

    Raises:
        OneshotError: no architecture is called like one of them.
    """
    own = dict.fromkeys(node.name for node in client_nodes(cfg))
    for name in cfg.clients.lr_of or ():
        if name not in own and not _is_called(name):
            known = [each for group in GROUPS.values() for each in choices(group)]
            raise OneshotError(
                f"clients.lr_of={shown(name)}: no architecture is called so{did_you_mean(name, {*known} - {name})}; "
                f"the clients here have {', '.join(own)}"
            )


def _is_called(name: str) -> bool:
    """Whether some architecture, chosen alone, has this name: that of its file, unless the file gives it another."""
    nodes = [unresolved(choice(group, name)) for group in GROUPS.values() if name in choices(group)]
    alone = any(node.get("name", name) == name and "names" not in node for node in nodes)
    return alone or problem(name, TorchvisionName) is None


def check_no_idle(cfg: DictConfig) -> None:
    """Whether somebody trains by what only classifiers are trained by.

    How long and on how many images at once stays what other jobs of a sweep may need.

    Raises:
        OneshotError: it was set, and all clients train a VAE.
    """
    for key, idle in IDLE.items():
        if cfg.clients[key] != idle and "classifier" not in kinds(cfg):
            raise OneshotError(
                f"clients.{key}={cfg.clients[key]}: only classifiers are trained so, and no client trains one "
                f"(clients.kinds); leave it at {'null' if idle is None else idle}"
            )
