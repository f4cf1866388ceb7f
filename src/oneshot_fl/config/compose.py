"""Configuration: where it lives and how its nodes become parts; with `__main__`, the only code that knows Hydra."""

import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeVar

from omegaconf import DictConfig, OmegaConf

from oneshot_fl.errors import OneshotError

Kind = Literal["classifier", "cvae"]
"""What a client trains: a classifier, which it uploads, or a conditional VAE, of which it uploads the decoder."""
T = TypeVar("T")
KINDS: tuple[Kind, ...] = ("classifier", "cvae")
GROUPS: dict[Kind, str] = {"classifier": "model", "cvae": "cvae"}
"""The config group of what each kind trains."""


def config_dir() -> Path:
    """The folder of YAML files: inside the package (wheel) or at the top of the repository (clone)."""
    packaged = Path(__file__).parents[1] / "conf"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "conf"


def plain(node: Any) -> Any:
    """A configuration node as resolved built-in containers, for keys and manifests."""
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def build(node: Any, **extra: Any) -> Any:
    """Instantiate a node's `_target_` with its keys and `extra`; `name` is a label and not passed on.

    A node marked `_partial_` waits for its `extra`; a node without a target is a dictionary of nodes.

    Raises:
        OneshotError: the part does not take a key that the node has, or lacks one that it needs.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    settings = {key: value for key, value in plain(node).items() if key != "name"}
    if "_target_" not in settings:
        return {key: build(value) for key, value in settings.items()}
    try:
        part = instantiate({**settings, "_partial_": True}, _convert_="all")
        if settings.get("_partial_") and not extra:
            return part
        inspect.signature(part.func).bind(*part.args, **{**part.keywords, **extra})
    except (InstantiationException, TypeError) as error:
        raise OneshotError(f"{settings.get('_target_')}: {' '.join(str(error).split())}") from error
    return part(**extra)


def takes(node: Any, key: str) -> bool:
    """Whether a node's part is a function with a parameter of that name."""
    return key in inspect.signature(build({**plain(node), "_partial_": True}).func).parameters


def choice(group: str, name: str) -> DictConfig:
    """The settings of one choice of a group by its name, also of a user's own config folder.

    Raises:
        OneshotError: there is no such file.
    """
    known = choices(group)
    if name not in known:
        raise OneshotError(
            f"{group}: there is no choice {name!r}{did_you_mean(name, known)}; choose from {', '.join(known)}"
        )
    return DictConfig(OmegaConf.load(known[name]))


def choices(group: str) -> dict[str, Path]:
    """The files of a group's choices by their names; where two folders have one of the same name, the first's."""
    paths = [path for folder in reversed(search_path()) for path in (Path(folder) / group).glob("*.yaml")]
    return dict(sorted({path.stem: path for path in paths}.items()))


def architecture(name: str, group: str = "model") -> DictConfig:
    """The settings of one architecture by its name.

    Raises:
        OneshotError: there is none of that name, or it stands for several.
    """
    node = choice(group, name)
    if "names" in node or OmegaConf.is_missing(node, "names"):
        raise OneshotError(f"{group}: {name} stands for several architectures; name one of them, for instance cnn2")
    return node


def search_path() -> list[str]:
    """The folders that configuration is read from: ours, and a user's own (`--config-dir`)."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return [str(config_dir())]
    return [source.path for source in HydraConfig.get().runtime.config_sources if source.schema == "file"]


def changed(cfg: DictConfig) -> dict[str, Any]:
    """The method's dotted keys whose values differ from what its choice alone gives, with their values (None: gone)."""
    ours, published = (OmegaConf.to_container(node) for node in (cfg.method, _published_method(cfg)))
    return dict(_differences(ours, published))


def composed(*overrides: str) -> Any:
    """The configuration with nothing but `overrides`; inside a job Hydra knows the user's own folders too."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    if GlobalHydra.instance().is_initialized() and HydraConfig.initialized():
        return compose("config", overrides=list(overrides))
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def _published_method(cfg: DictConfig) -> Any:
    """The method as its choice alone gives it; a job knows the choice, elsewhere it is the name."""
    from hydra.core.hydra_config import HydraConfig

    name = HydraConfig.get().runtime.choices["method"] if HydraConfig.initialized() else cfg.method.name
    return composed(f"method={name}").method


def _differences(ours: Any, theirs: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        own, other = ours.get(key), theirs.get(key)
        if isinstance(own, dict) and isinstance(other, dict):
            yield from _differences(own, other, f"{prefix}{key}.")
        elif own != other:
            yield f"{prefix}{key}", own


def kinds(cfg: DictConfig) -> list[Kind]:
    """What each of the m clients trains, `classifier` or `cvae`.

    A list is round robin; shares (`{classifier: 1, cvae: 1}`) are blocks in that order, rounded at their borders;
    null is classifiers only.

    Raises:
        OneshotError: `clients.kinds` is none of these.
    """
    given, clients = plain(cfg.clients.kinds), cfg.partition.clients
    if given is None:
        return ["classifier"] * clients
    if isinstance(given, list) and given and set(given) <= set(KINDS):
        return [given[k % len(given)] for k in range(clients)]
    if isinstance(given, dict) and set(given) <= set(KINDS) and _are_shares(list(given.values())):
        return _in_blocks(list(given), list(given.values()), clients)
    raise OneshotError(
        f"clients.kinds={given}: must be a list of {' and '.join(KINDS)}, which is round robin, or their shares, for "
        "instance '{classifier: 1, cvae: 1}'"
    )


def _in_blocks(choices: Sequence[T], shares: Sequence[float], clients: int) -> list[T]:
    """A choice a client: one block for each, as long as its share of the clients, rounded at the borders."""
    borders = [round(clients * share / sum(shares)) for share in accumulate(shares)]
    return [one for one, low, high in zip(choices, [0, *borders], borders, strict=False) for _ in range(low, high)]


def _are_shares(values: Any) -> bool:
    if not isinstance(values, list) or not all(isinstance(value, int | float) and value >= 0 for value in values):
        return False
    return sum(values) > 0


def client_nodes(cfg: DictConfig) -> list[DictConfig]:
    """What each of the m clients trains: the settings of its classifier or of its VAE."""
    wanted = kinds(cfg)
    dealt = {kind: _dealt(cfg, GROUPS[kind]) for kind in dict.fromkeys(wanted)}
    return [dealt[kind][k] for k, kind in enumerate(wanted)]


def nodes_of(cfg: DictConfig, kind: Kind) -> list[DictConfig]:
    """What the clients of one kind train."""
    return [node for node, own in zip(client_nodes(cfg), kinds(cfg), strict=True) if own == kind]


def client_models(cfg: DictConfig) -> list[DictConfig]:
    """The classifier of each of the m clients, whether or not it trains one.

    Several names are round robin; with `model.shares`, a number for each, in blocks, rounded at their borders.

    Raises:
        OneshotError: `model.names` is missing, empty, or longer than there are clients; `model.shares` does not fit
            them; or the architecture follows the data set (`model.of`) and there is none for this one.
    """
    return _dealt(cfg, "model")


def _dealt(cfg: DictConfig, group: str) -> list[DictConfig]:
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
            f"{group}.names: needs between 1 and {clients} names (partition.clients), which are round robin, "
            f"for instance '{group}.names=[cnn2,lenet5,resnet18]'"
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


def source_needs(cfg: DictConfig) -> frozenset[str]:
    """What the method's source of images needs; nothing where there is none."""
    return frozenset() if cfg.method.source is None else build(without_parts(cfg.method.source)).func.needs


def without_parts(source: DictConfig) -> dict[str, Any]:
    """A source's own settings: its generator and optimiser are parts of their own."""
    return {str(key): value for key, value in source.items() if key not in ("generator", "optimizer")}


def server_models(cfg: DictConfig) -> list[DictConfig]:
    """The server's architectures: `server_model`, or the (first) client's.

    With `per_architecture` a method has a model for each architecture of its classifiers unless `server_model` is one.
    """
    if cfg.server_model is not None:
        return [architecture(cfg.server_model)]
    if not cfg.method.get("per_architecture"):
        return client_models(cfg)[:1]
    nodes = nodes_of(cfg, "classifier") or client_models(cfg)[:1]
    return list({json.dumps(plain(node)): node for node in nodes}.values())


def server_name(cfg: DictConfig) -> str:
    """What reports call the server's model, `cnn2` or, where several vote, `cnn2+lenet5`."""
    return "+".join(node.name for node in server_models(cfg))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean ...?` where some known word is near."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean {found[0]}?" if found else ""
