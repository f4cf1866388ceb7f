"""The data set that lends a proxy its images: `proxy.data` by name, in `proxy.root`, else as its file says."""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config.compose import composed, plain, search_path
from oneshot_fl.config.groups import CALLED, check_node
from oneshot_fl.config.shadowed import check_one_file
from oneshot_fl.errors import OneshotError

SHOWN = {"name", "cache", "download", "size", "channels", "max_value", "background", "mean", "std", "held_out"}
"""Keys of a data set that do not choose which images it has, only how they are called, kept, shown or parted."""
OTHER_KEY = re.compile(r"(?<![\w.])data\.\w+")


def lent(cfg: DictConfig) -> DictConfig:
    """The settings of the data set that `proxy.data` names.

    Raises:
        OneshotError: a file of the user's own has its name too, and is not read.
    """
    check_one_file("data", cfg.proxy.data, search_path())
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
    if _chosen(node) == _chosen(own) and _share_a_domain(node.get("domains"), own.get("domains")):
        raise OneshotError(
            f"proxy.data={name}: is the data set of the clients (data={own.name}), whose images the server has not; "
            "choose another, or proxy=holdout, which takes images away from all clients alike"
        )


def _chosen(node: DictConfig) -> dict[str, Any]:
    """What says which images a data set has, but for its domains; what is fetched is the same in every root."""
    chosen = {key: value for key, value in plain(node).items() if key not in {*SHOWN, "domains"}}
    if "root" in chosen:
        chosen["root"] = None if "download" in node else os.path.realpath(os.path.expanduser(str(chosen["root"])))
    return chosen


def _share_a_domain(some: Sequence[Any] | None, others: Sequence[Any] | None) -> bool:
    """Whether two lists of domains name one alike; None names all."""
    return some is None or others is None or bool(set(map(str, some)) & set(map(str, others)))


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
