"""Who trains what: kinds and architectures of the clients, and the server's architectures."""

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, TypeVar

from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config.compose import architecture, plain
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import problem
from oneshot_fl.values import NotNegative

KindName = Literal["classifier", "cvae"]
"""What a client trains: a classifier, which it uploads, or a conditional VAE, of which it uploads the decoder."""
T = TypeVar("T")
KINDS: tuple[KindName, ...] = ("classifier", "cvae")
GROUPS: dict[KindName, str] = {"classifier": "model", "cvae": "cvae"}
"""The config group of what each kind trains."""
SOME = {"model": ("cnn2", "lenet5", "resnet18"), "cvae": ("cvae_mlp", "cvae_conv2", "cvae_conv3")}
"""A few of each group, for the line that says how several are chosen."""


def kinds(cfg: DictConfig) -> list[KindName]:
    """What each of the m clients trains, `classifier` or `cvae`.

    A list is assigned round robin; shares (`{classifier: 1, cvae: 1}`) are blocks in that order, rounded at their
    borders; null is classifiers only.

    Raises:
        OneshotError: `clients.kinds` is none of these.
    """
    given, clients = plain(cfg.clients.kinds), cfg.partition.clients
    if given is None:
        return ["classifier"] * clients
    if isinstance(given, list) and given and all(one in KINDS for one in given):
        return [given[k % len(given)] for k in range(clients)]
    if isinstance(given, dict) and set(given) <= set(KINDS) and _are_shares(list(given.values())):
        return _in_blocks(list(given), list(given.values()), clients)
    raise OneshotError(
        f"clients.kinds={given!r}: must be a list of {' and '.join(KINDS)}, which is assigned round robin, or their "
        "shares, for instance {classifier: 1, cvae: 1}"
    )


def client_nodes(cfg: DictConfig) -> list[DictConfig]:
    """What each of the m clients trains: the settings of its classifier or of its VAE."""
    wanted = kinds(cfg)
    assigned = {kind: _assigned(cfg, GROUPS[kind]) for kind in dict.fromkeys(wanted)}
    return [assigned[kind][k] for k, kind in enumerate(wanted)]


def nodes_of(cfg: DictConfig, kind: KindName) -> list[DictConfig]:
    """What the clients of one kind train."""
    return [node for node, own in zip(client_nodes(cfg), kinds(cfg), strict=True) if own == kind]


def client_models(cfg: DictConfig) -> list[DictConfig]:
    """The classifier of each of the m clients, whether or not it trains one.

    Several names are assigned round robin; with `model.shares`, a number for each, in blocks, rounded at their borders.

    Raises:
        OneshotError: `model.names` is missing, empty, or longer than there are clients; `model.shares` does not fit
            them; or the architecture follows the data set (`model.of`) and there is none for this one.
    """
    return _assigned(cfg, "model")


def server_models(cfg: DictConfig) -> list[DictConfig]:
    """The server's architectures: `server_model`, or the (first) client's.

    With `per_architecture` a method has a model for each architecture of its classifiers unless `server_model` is one.
    """
    if cfg.server_model is not None:
        return [architecture(cfg.server_model)]
    if not cfg.method.get("per_architecture"):
        return client_models(cfg)[:1]
    nodes = {id(node): node for node in nodes_of(cfg, "classifier") or client_models(cfg)[:1]}  # most clients share one
    return list({json.dumps(plain(node)): node for node in nodes.values()}.values())


def server_name(cfg: DictConfig) -> str:
    """What reports call the server's model, `cnn2` or, where several vote, `cnn2+lenet5`."""
    return "+".join(node.name for node in server_models(cfg))


def _assigned(cfg: DictConfig, group: str) -> list[DictConfig]:
    node, clients, data = cfg[group], cfg.partition.clients, cfg.data.name
    if "of" in node and not {data, "other"} & set(node.of):
        raise OneshotError(
            f"{group}={node.name}: has no architecture for data={data}, only for {', '.join(map(str, node.of))}; "
            f"add one, +{group}.of.{data}=NAME, or choose another {group}"
        )
    missing = OmegaConf.is_missing(node, "names")
    if not missing and "names" not in node:
        return [node] * clients
    if missing or not 1 <= len(node.names) <= clients:
        raise OneshotError(
            f"{group}.names: needs between 1 and {clients} names (partition.clients), which are assigned round robin, "
            f"for instance '{group}.names=[{','.join(SOME[group][:clients])}]'"
        )
    nodes = [architecture(name, group) for name in node.names]
    if node.get("shares") is None:
        return [nodes[k % len(nodes)] for k in range(clients)]
    return _in_blocks(nodes, _shares(cfg, group), clients)


def _shares(cfg: DictConfig, group: str) -> list[float]:
    shares, names = plain(cfg[group].shares), plain(cfg[group].names)
    if not _are_shares(shares) or len(shares) != len(names):
        raise OneshotError(
            f"{group}.shares={shares}: must be a list of numbers of at least 0, not all 0, one for each of "
            f"{group}.names={names}; or null, which assigns them round robin"
        )
    return shares


def _in_blocks(choices: Sequence[T], shares: Sequence[float], clients: int) -> list[T]:
    """A choice per client: one block for each, as long as its share of the clients, rounded at the borders."""
    borders = [round(clients * share / sum(shares)) for share in accumulate(shares)]
    return [one for one, low, high in zip(choices, [0, *borders], borders, strict=False) for _ in range(low, high)]


def _are_shares(values: Any) -> bool:
    return isinstance(values, list) and all(problem(one, NotNegative) is None for one in values) and sum(values) > 0
