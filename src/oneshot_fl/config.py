"""Configuration: where it lives and how its nodes become parts; with `__main__`, the only code that knows Hydra."""

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oneshot_fl.errors import OneshotError


def config_dir() -> Path:
    """The folder of YAML files: inside the package (wheel) or at the top of the repository (clone)."""
    packaged = Path(__file__).parent / "conf"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "conf"


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


def model_node(name: str) -> DictConfig:
    """The settings of one architecture by its name in the `model` group, also of a user's own config folder.

    Raises:
        OneshotError: there is no such file.
    """
    folders = [Path(folder) / "model" for folder in search_path()]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return DictConfig(OmegaConf.load(folder / f"{name}.yaml"))
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    raise OneshotError(
        f"model: there is no architecture {name!r}{nearest(name, known)}; choose from {', '.join(known)}"
    )


def search_path() -> list[str]:
    """The folders that configuration is read from: ours, and a user's own (`--config-dir`)."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return [str(config_dir())]
    return [source.path for source in HydraConfig.get().runtime.config_sources if source.schema == "file"]


def client_models(cfg: DictConfig) -> list[DictConfig]:
    """The architecture of each of the m clients.

    Raises:
        OneshotError: `model.names` is missing, empty, or longer than there are clients.
    """
    clients = cfg.partition.clients
    missing = OmegaConf.is_missing(cfg.model, "names")
    if not missing and "names" not in cfg.model:
        return [cfg.model] * clients
    if missing or not 1 <= len(cfg.model.names) <= clients:
        raise OneshotError(
            f"model.names: needs between 1 and {clients} names (partition.clients), which are dealt in turn, "
            "for instance 'model.names=[cnn2,lenet5,resnet18]'"
        )
    nodes = [model_node(name) for name in cfg.model.names]
    return [nodes[k % len(nodes)] for k in range(clients)]


def server_model(cfg: DictConfig) -> DictConfig:
    """The server's architecture: `server_model`, or the (first) client's."""
    return client_models(cfg)[0] if cfg.server_model is None else model_node(cfg.server_model)


def nearest(word: str, known: Iterable[str]) -> str:
    """`, did you mean ...?` where some known word is near."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean {found[0]}?" if found else ""
