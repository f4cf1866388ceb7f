"""Configuration: where it lives and how its nodes become parts; with `__main__`, the only code that knows Hydra."""

import inspect
from collections.abc import Iterable, Iterator
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


def choice(group: str, name: str) -> DictConfig:
    """The settings of one choice of a group by its name, also of a user's own config folder.

    Raises:
        OneshotError: there is no such file.
    """
    folders = [Path(folder) / group for folder in search_path()]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return DictConfig(OmegaConf.load(folder / f"{name}.yaml"))
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    raise OneshotError(f"{group}: there is no choice {name!r}{nearest(name, known)}; choose from {', '.join(known)}")


def architecture(name: str) -> DictConfig:
    """The settings of one architecture by its name.

    Raises:
        OneshotError: there is none of that name, or it stands for several.
    """
    node = choice("model", name)
    if "names" in node or OmegaConf.is_missing(node, "names"):
        raise OneshotError(f"model: {name} stands for several architectures; name one of them, for instance cnn2")
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


def client_models(cfg: DictConfig) -> list[DictConfig]:
    """The architecture of each of the m clients.

    Raises:
        OneshotError: `model.names` is missing, empty, or longer than there are clients; or the architecture follows
            the data set (`model.of`) and there is none for this one.
    """
    clients = cfg.partition.clients
    if "of" in cfg.model and cfg.data.name not in cfg.model.of:
        raise OneshotError(
            f"model={cfg.model.name}: has no architecture for data={cfg.data.name}, only for "
            f"{', '.join(map(str, cfg.model.of))}; add one, +model.of.{cfg.data.name}=cnn2, or choose another model"
        )
    missing = OmegaConf.is_missing(cfg.model, "names")
    if not missing and "names" not in cfg.model:
        return [cfg.model] * clients
    if missing or not 1 <= len(cfg.model.names) <= clients:
        raise OneshotError(
            f"model.names: needs between 1 and {clients} names (partition.clients), which are dealt in turn, "
            "for instance 'model.names=[cnn2,lenet5,resnet18]'"
        )
    nodes = [architecture(name) for name in cfg.model.names]
    return [nodes[k % len(nodes)] for k in range(clients)]


def server_model(cfg: DictConfig) -> DictConfig:
    """The server's architecture: `server_model`, or the (first) client's."""
    return client_models(cfg)[0] if cfg.server_model is None else architecture(cfg.server_model)


def nearest(word: str, known: Iterable[str]) -> str:
    """`, did you mean ...?` where some known word is near."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean {found[0]}?" if found else ""
