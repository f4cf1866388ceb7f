"""Configuration: where it lives and how its nodes become parts. Beside it `__main__` and the launchers know Hydra."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.shadowed import check_one_file, folders_of, place_of
from oneshot_fl.errors import OneshotError, did_you_mean, one_line
from oneshot_fl.recipe import Recipe

PRIMARY = "config"
"""The file that all others are merged into, where `--config-name` names no other."""
AROUND_JOBS = ("hydra.job.chdir", "hydra.job.env_set", "hydra.job.env_copy")
"""What a job finds around it, its folder and variables, as Hydra sets them; its configuration may refer to them."""
UNREADABLE = (yaml.YAMLError, UnicodeError, OSError)
"""What is wrong with a file rather than with a key."""


def config_dir() -> Path:
    """The folder of YAML files: inside the package (wheel) or at the top of the repository (clone)."""
    packaged = Path(__file__).parents[1] / "conf"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "conf"


def plain(node: Any) -> Any:
    """A configuration node as resolved built-in containers, for keys and manifests."""
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def unresolved(node: DictConfig) -> Any:
    """A configuration node as built-in containers, where it refers to others with the reference."""
    return OmegaConf.to_container(node)


def build(node: Any, **extra: Any) -> Any:
    """Instantiate a node's `_target_` with its keys and `extra`; `name` is a label and not passed on.

    A node marked `_partial_` waits for its `extra`; a node without a target is a dictionary of nodes.

    Raises:
        OneshotError: the part does not take a key that the node has, or lacks one that it needs.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    settings = _without_labels(plain(node))
    if "_target_" not in settings:
        return {key: build(value) for key, value in settings.items() if key != "name"}
    try:
        part = instantiate({**settings, "_partial_": True}, _convert_="all")
        if settings.get("_partial_") and not extra:
            return part
        inspect.signature(part.func).bind(*part.args, **{**part.keywords, **extra})
    except (InstantiationException, TypeError) as error:
        raise OneshotError(f"{settings.get('_target_')}: {' '.join(str(error).split())}") from error
    return part(**extra)


def _without_labels(node: Any) -> Any:
    """Nested settings without the `name` of any node with a `_target_`; in other dictionaries a name is a setting."""
    if isinstance(node, list):
        return [_without_labels(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    return {key: _without_labels(value) for key, value in node.items() if key != "name" or "_target_" not in node}


def recipe(node: Any) -> Recipe[Any]:
    """A node with a `_target_` as a part that waits for what only a run knows; `name` is a label and not passed on.

    Raises:
        OneshotError: the target cannot be found.
    """
    settings = plain(node)
    waiting = build({**{key: value for key, value in settings.items() if key != "_partial_"}, "_partial_": True})
    return Recipe(settings, waiting.func, waiting)


def choice(group: str, name: str) -> DictConfig:
    """The settings of one choice of a group by its name, also of a user's own config folder.

    Raises:
        OneshotError: there is no such file, it cannot be read, or one of the user's own has its name.
    """
    known = choices(group)
    if name not in known:
        raise OneshotError(
            f"{group}: there is no choice {name!r}{did_you_mean(name, known)}; choose from {', '.join(known)}"
        )
    check_one_file(group, name, search_path())
    try:
        return DictConfig(OmegaConf.load(known[name]))
    except (*UNREADABLE, OmegaConfBaseException) as error:
        raise OneshotError(f"{known[name]}: cannot be read as settings of {group} ({one_line(error)})") from error


def choices(group: str) -> dict[str, Path]:
    """The files of a group's choices by their names; where two folders have one of the same name, the first's.

    A name that begins with `_` is no choice: it holds what several choices share.
    """
    paths = [path for folder in reversed(search_path()) for path in (Path(folder) / group).glob("*.yaml")]
    return dict(sorted({path.stem: path for path in paths if not path.stem.startswith("_")}.items()))


EXAMPLES = {"model": "cnn2", "cvae": "cvae_mlp"}
"""A choice of each group of architectures that is one by its name alone."""


def architecture(name: str, group: str = "model") -> DictConfig:
    """The settings of one architecture by its name.

    Raises:
        OneshotError: there is none of that name, or it stands for several, or for one only inside a configuration.
    """
    node, example = choice(group, name), f"for instance {EXAMPLES[group]}"
    if "names" in node or OmegaConf.is_missing(node, "names"):
        raise OneshotError(f"{group}: {name} stands for several architectures; name one of them, {example}")
    if "defaults" in node:
        raise OneshotError(
            f"{group}: {name} has defaults, other files that are read for {group}={name} alone; write its keys out"
        )
    try:
        OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise OneshotError(
            f"{group}: {name} says too little by its name alone, it has values that only a configuration gives; name "
            f"another, {example}"
        ) from error
    return node


OWN_FOLDER: ContextVar[Path | None] = ContextVar("OWN_FOLDER", default=None)


@contextmanager
def reading_also(folder: str | Path | None) -> Iterator[None]:
    """Inside the block configuration is also read from a user's own folder, outside of Hydra's jobs.

    Raises:
        OneshotError: there is no such folder.
    """
    own = None if folder is None else Path(folder).absolute()
    if own is not None and not own.is_dir():
        raise OneshotError(f"config_dir={folder}: is no folder; give one with the same sub-folders as conf/")
    token = OWN_FOLDER.set(own)
    try:
        yield
    finally:
        OWN_FOLDER.reset(token)


CHOSEN: ContextVar[str | None] = ContextVar("CHOSEN", default=None)


@contextmanager
def having_chosen(method: str) -> Iterator[None]:
    """Inside the block it is known, outside of Hydra's jobs, which `method=` was chosen: its `name` is but a label."""
    token = CHOSEN.set(method)
    try:
        yield
    finally:
        CHOSEN.reset(token)


def method_of(whole: DictConfig) -> str:
    """The `method=` of a configuration that has Hydra's own settings still."""
    return str(whole.hydra.runtime.choices["method"])


def search_path() -> list[str]:
    """The folders that configuration is read from: ours, and a user's own (`--config-dir`)."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return [str(folder) for folder in (config_dir(), OWN_FOLDER.get()) if folder is not None]
    return [str(folder) for folder in folders_of(HydraConfig.get())]


def changed(cfg: DictConfig) -> dict[str, Any]:
    """The method's dotted keys whose values differ from what its choice alone gives, with their values (None: gone)."""
    return dict(_differences(unresolved(cfg.method), published_method(cfg)))


def overrides() -> list[str]:
    """What this job's command line chose; nothing outside of a job."""
    from hydra.core.hydra_config import HydraConfig

    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []


def searched() -> list[str]:
    """The words of a command that say where else than in our files this job's configuration is read from, if anywhere.

    Behind them is what was set of the folder and the variables that it finds. What other packages add of their own
    accord is no part of a command.
    """
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return _searching(_own_place())
    hydra = HydraConfig.get()
    more = _searching(_places(hydra, "hydra.searchpath in command-line"))
    return [*_other_files(hydra), *more, *filter(is_of_jobs, hydra.overrides.hydra)]


def is_of_jobs(word: str) -> bool:
    """Whether an override says what a job finds around it."""
    return word.lstrip("+~").startswith(AROUND_JOBS)


def _other_files(hydra: Any) -> Iterator[str]:
    """The options that gave a folder in place of ours or beside it, and another primary file: no override gives it."""
    for source in hydra.runtime.config_sources:
        if source.provider == "main" and source.path != str(config_dir()):
            yield f"--config-path={source.path}"
        if source.provider == "command-line":
            yield f"--config-dir={source.path}"
    if hydra.job.config_name != PRIMARY:
        yield f"--config-name={hydra.job.config_name}"


def placed(key: str, folder: Path) -> str:
    """A key of Hydra's with a folder, in Hydra's quotes: the `=` and `,` in a job's folder are no syntax."""
    escaped = str(folder).replace('"', r"\"")
    return f'{key}="{escaped}"'


def _own_place() -> list[str]:
    own = OWN_FOLDER.get()
    return [] if own is None else [f"file://{own}"]


def _places(hydra: Any, provider: str) -> list[str]:
    """Where a job's choices are read from by the word of a provider."""
    sources = [source for source in hydra.runtime.config_sources if provider in source.provider]
    return [f"{source.schema}://{place_of(hydra, source)}" for source in sources]


def _searching(places: list[str]) -> list[str]:
    return [f"hydra.searchpath={places}"] if places else []


def composed(*wanted: str) -> Any:
    """The configuration with nothing but `wanted` overrides; inside a job Hydra knows the user's own folders too."""
    return without_hydras(with_hydras(*wanted))


def without_hydras(cfg: DictConfig) -> DictConfig:
    """The same configuration, from now on without Hydra's own settings."""
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


def with_hydras(*wanted: str) -> Any:
    """What `composed` gives, with Hydra's own settings (`hydra`)."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    if GlobalHydra.instance().is_initialized() and HydraConfig.initialized():
        more = _searching(_places(HydraConfig.get(), "hydra.searchpath"))  # Hydra forgets it, and keeps --config-dir
        return compose(PRIMARY, overrides=[*more, *wanted], return_hydra_config=True)
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        return compose(PRIMARY, overrides=[*_searching(_own_place()), *wanted], return_hydra_config=True)


def chosen_method(cfg: DictConfig) -> str:
    """The `method=` that was chosen; where neither a job nor `having_chosen` knows it, it is the method's name."""
    from hydra.core.hydra_config import HydraConfig

    chosen = HydraConfig.get().runtime.choices["method"] if HydraConfig.initialized() else CHOSEN.get()
    return str(chosen or cfg.method.name)


@contextmanager
def apart_from_a_callers() -> Iterator[None]:
    """Inside the block Hydra knows of no job and no files: a caller's program may use it too, for files of its own."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    files, job = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
    GlobalHydra.instance().hydra = HydraConfig.instance().cfg = None
    try:
        yield
    finally:  # of other instances by now: composing replaces them
        GlobalHydra.instance().hydra, HydraConfig.instance().cfg = files, job


PUBLISHED: ContextVar[dict[str, Any] | None] = ContextVar("PUBLISHED", default=None)


@contextmanager
def having_published(method: dict[str, Any] | None) -> Iterator[None]:
    """Inside the block the method's choice alone gives this, as read with a sweep's jobs: files may be others by now.

    Args:
        method: None to read the files.
    """
    token = PUBLISHED.set(method)
    try:
        yield
    finally:
        PUBLISHED.reset(token)


def published_method(cfg: DictConfig) -> dict[str, Any]:
    """The method as its choice alone gives it."""
    if (known := PUBLISHED.get()) is not None:
        return known
    name = chosen_method(cfg)
    files = [path for folder in search_path() for path in sorted((Path(folder) / "method").rglob("*.yaml"))]
    return _method_alone(name, tuple((str(path), path.stat().st_mtime_ns) for path in files))


@cache  # the jobs of a sweep ask again
def _method_alone(name: str, files: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """The settings that `method=NAME` has as long as the group's `files` stay as they are; not to be changed."""
    return unresolved(composed(f"method={name}").method)


def _differences(ours: Any, theirs: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        own, other = ours.get(key), theirs.get(key)
        if isinstance(own, dict) and isinstance(other, dict):
            yield from _differences(own, other, f"{prefix}{key}.")
        elif own != other:
            yield f"{prefix}{key}", own
