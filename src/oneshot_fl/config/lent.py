"""The data set that lends a proxy its images: `proxy.data` by name, in `proxy.root`, else as its file says."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config.compose import composed, plain
from oneshot_fl.config.groups import CALLED, check_node
from oneshot_fl.errors import OneshotError

MERELY = {"name", "cache", "download"}
"""Keys of a data set that do not change its images."""
OTHER_KEY = re.compile(r"(?<![\w.])data\.\w+")


def lent(cfg: DictConfig) -> DictConfig:
    """The settings of the data set that `proxy.data` names."""
    whole = composed(f"data={cfg.proxy.data}")
    whole.store, node = cfg.store, whole.data
    if "root" in node.keys():  # noqa: SIM118  (a key without a value yet is not `in` it)
        node.root = cfg.proxy.root
    return node


def check_lent(cfg: DictConfig) -> None:
    """Whether that data set could be loaded, where a proxy takes one, and is not the clients' own.

    Raises:
        OneshotError: it is; or a key of it has no value, or a wrong one.
    """
    if cfg.proxy.get("data") is not None:
        node = lent(cfg)
        asked(cfg.proxy.data, partial(_check, node))
        _check_foreign(cfg.proxy.data, node, cfg.data)


def _check_foreign(name: str, node: DictConfig, own: DictConfig) -> None:
    """The server has none of the clients' images, nor those that `development=true` takes from them for its test."""
    if all(node.get(key) == own.get(key) for key in {*node, *own} - MERELY):
        raise OneshotError(
            f"proxy.data={name}: is the data set of the clients (data={own.name}), whose images the server has not; "
            "choose another, or proxy=holdout, which takes images away from all clients alike"
        )


def _check(node: DictConfig) -> None:
    if missing := sorted(OmegaConf.missing_keys(node)):
        raise OneshotError(f"{missing[0]}: has no value")
    check_node("data", plain(node), CALLED["data"])


def asked(name: str, call: Callable[[], Any]) -> Any:
    """What a call about the data set of this name gives.

    Raises:
        OneshotError: what the call raises, in the words of the proxy that asks: nobody has set a key of `data`.
    """
    try:
        return call()
    except OneshotError as error:
        line = str(error).removeprefix(f"data={name}: ").replace("data.root", "proxy.root")
        remedy = f"; besides proxy.root, proxy.data takes what data/{name}.yaml says: name a file of your own instead"
        raise OneshotError(f"proxy.data={name}: {line}{remedy * bool(OTHER_KEY.search(line))}") from error
