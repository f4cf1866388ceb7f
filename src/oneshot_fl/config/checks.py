"""Checks before any training, and plain words for the errors of composing a configuration."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.clients import nodes_of, server_models
from oneshot_fl.config.compose import architecture, choices, plain
from oneshot_fl.config.explain import explain, no_such_key
from oneshot_fl.config.fileless import check_files
from oneshot_fl.config.groups import CALLED, check_called, check_node, check_tables, check_top, inside
from oneshot_fl.config.hostile import check_attack
from oneshot_fl.config.images import check_images
from oneshot_fl.config.keys import OF_OTHERS, all_keys, groups, looked_up
from oneshot_fl.config.leftover import check_left_over
from oneshot_fl.config.lent import check_lent
from oneshot_fl.config.method import check_method
from oneshot_fl.config.needs import check_architectures, check_features, check_kinds, check_teacher
from oneshot_fl.config.parts import check_parts
from oneshot_fl.config.rules import MISSING, check_group, has_no_value
from oneshot_fl.config.training import check_no_idle, check_rates
from oneshot_fl.config.trial import check_sizes, shape_of
from oneshot_fl.errors import OneshotError, did_you_mean
from oneshot_fl.fits import shown

STORES = ("store", "data.cache")
FOLDERS = (*STORES, "data.root", "proxy.root")


def check(cfg: DictConfig) -> None:
    """Everything that can be known to be wrong before data are read.

    Raises:
        OneshotError: naming the first key that is wrong and what would be right.
    """
    settings = check_settings(cfg)
    check_images(settings)
    check_teacher(cfg, settings)
    check_rates(cfg)
    check_attack(settings["attack"], cfg.partition.clients, nodes_of(cfg, "classifier"))
    check_no_idle(cfg)
    _check_precision(cfg)
    _check_held_out(cfg)
    _check_lengths(settings)
    _check_folders(settings)
    check_lent(cfg)
    check_kinds(cfg)
    check_architectures(cfg)
    check_sizes(settings, [*nodes_of(cfg, "classifier"), *server_models(cfg)], nodes_of(cfg, "cvae"))
    check_features(cfg, settings)


def check_settings(cfg: DictConfig) -> dict[Any, Any]:
    """Every key and every value by itself, whoever the clients are; the configuration as plain containers.

    Raises:
        OneshotError: naming the first key that is wrong and what would be right.
    """
    settings = _resolved(cfg)
    _check_unknown(settings)
    _check_looked_up(settings)
    _check_groups(settings)
    _check_missing(cfg)
    check_top(settings)
    check_tables(settings)
    check_left_over(cfg, settings["method"])
    check_method(settings["method"])
    check_called(settings)
    check_files(settings)
    check_parts(settings)
    _check_names(settings)
    return settings


def _resolved(cfg: DictConfig) -> dict[Any, Any]:
    """The whole configuration as plain containers.

    Raises:
        OneshotError: a value refers to one that there is not, or to itself.
    """
    try:
        return plain(cfg)
    except RecursionError as error:
        raise OneshotError(
            "the configuration: a value refers to itself (${...}); --cfg job prints all values"
        ) from error
    except OmegaConfBaseException as error:
        raise OneshotError(_without_entry(cfg, str(error)) or explain(error)) from error


def _without_entry(cfg: DictConfig, text: str) -> str | None:
    """What to say where a choice has no architecture for the data set."""
    match = re.search(r"Interpolation key '(\w+)\.of\.([^']+)' not found", text)
    if not match:
        return None
    group, data = match.groups()
    return (
        f"{group}={OmegaConf.select(cfg, f'{group}.name')}: has no entry for data={data}, only for "
        f"{', '.join(map(str, OmegaConf.select(cfg, f'{group}.of') or ()))}; add one, +{group}.of.{data}=NAME, or "
        f"choose another {group}"
    )


def _check_unknown(settings: dict[Any, Any]) -> None:
    """Keys appended with `+` where nothing would read them; nodes with a `_target_` are held against that."""
    if stray := [name for name in OF_OTHERS if name in settings]:
        raise OneshotError(
            f"{stray[0]}: has no keys, its choices set those of other groups; choose one, {stray[0]}=NAME"
        )
    known = all_keys()
    for group in ("", "budget", "clients", "stratify", "recite", "distill", "evaluate.fidelity", "method"):
        node = inside(settings, group) if group else settings
        names = [f"{group}.{name}".strip(".") for name in (node if isinstance(node, dict) else ())]
        if unknown := [name for name in names if name not in known]:
            raise OneshotError(no_such_key(unknown[0], known))


def _check_looked_up(settings: Mapping[str, Any]) -> None:
    """Entries of the tables `of` that no file looks up."""
    tables = {group: node["of"] for group, node in settings.items() if isinstance(node, dict) and "of" in node}
    for group, table in tables.items():
        known = looked_up(group)
        names = [str(name) for name in table] if isinstance(table, dict) else []
        if known and (unknown := [name for name in names if name not in known]):
            near = did_you_mean(unknown[0], known)
            raise OneshotError(
                f"{group}.of.{unknown[0]}: nothing looks that up{near}; looked up in {group}.of are {', '.join(known)}"
            )


def _check_groups(settings: dict[Any, Any]) -> None:
    """A name or number where a group of settings belongs; some slots of a method may be null."""
    for group in groups():
        key = group.replace("/", ".")
        if (node := inside(settings, key)) is not None:
            check_group(key, node)


def _check_missing(cfg: DictConfig) -> None:
    missing = sorted(OmegaConf.missing_keys(cfg) - {"model.names", "cvae.names"})
    if missing:
        raise OneshotError(has_no_value(missing[0]))


def _check_names(settings: dict[Any, Any]) -> None:
    """Names of architectures and data sets that there are."""
    known_of = {group: choices(group) for group in ("model", "cvae")}
    architectures = _named_architectures(settings)

    def of(group: str) -> Iterable[Any]:
        return (settings[group].get("of") or {}).values()

    named: list[tuple[str, Any, Mapping[str, Path]]] = [
        *((f"{group}.of", name, known) for group, known in known_of.items() for name in of(group)),
        *((key, name, known_of[group]) for key, name, group in architectures),
        ("proxy.data", settings["proxy"].get("data"), choices("data")),
    ]
    for key, name, known in named:
        if name is not None and name not in known:
            raise OneshotError(
                f"{key}={shown(name)}: there is no choice of that name{did_you_mean(str(name), known)}; choose from "
                f"{', '.join(known)}"
            )
    for key, name, group in architectures:
        _check_architecture(key, name, group)
    for group in known_of:
        _check_apart(group, [name for key, name, _ in architectures if key == f"{group}.names"])


def _named_architectures(settings: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Architectures that are chosen by no more than their name: the key, the name, and the group."""
    measured = {f"evaluate.{name}.model": settings["evaluate"][name] for name in ("fidelity", "privacy")}
    named = [
        ("server_model", settings["server_model"], "model"),
        *((key, (node or {}).get("model"), "model") for key, node in measured.items()),
    ]
    for group in ("model", "cvae"):
        names = settings[group].get("names", MISSING)
        named += [(f"{group}.names", name, group) for name in (names if names != MISSING else ())]
    return [each for each in named if each[1] is not None]


def _check_architecture(key: str, name: str, group: str) -> None:
    """As that of a group that is chosen whole, whose settings are those of the configuration."""
    try:
        check_node(group, plain(architecture(name, group)), CALLED[group])
    except OneshotError as error:
        raise OneshotError(f"{key}={shown(name)}: {error}") from error


def _check_apart(group: str, names: Iterable[str]) -> None:
    """Plans and records know an architecture by its name alone."""
    called: dict[str, tuple[str, Any]] = {}
    for name in names:
        node = plain(architecture(name, group))
        first, other = called.setdefault(node["name"], (name, node))
        if other != node:
            raise OneshotError(
                f"{group}.names: {first} and {name} are both called {node['name']} and differ; give each file a "
                "`name:` of its own"
            )


def _check_lengths(settings: dict[Any, Any]) -> None:
    """One mean and one deviation, or one per channel."""
    data = settings["data"]
    channels = shape_of(data)[0]
    for key in ("mean", "std"):
        if channels and isinstance(given := data.get(key), list) and len(given) not in (1, channels):
            raise OneshotError(
                f"data.{key}={given}: must be one number, or one for each of the {channels} channels of "
                f"data={data['name']}"
            )


def _check_folders(settings: dict[Any, Any]) -> None:
    """Folders that are files, and stores that cannot be written."""
    for key in FOLDERS:
        text = inside(settings, key)
        if not isinstance(text, str):
            continue
        try:
            there = nearest_folder(Path(text).expanduser())
        except (OSError, RuntimeError) as error:  # too long for a name; no such user's home
            raise OneshotError(f"{key}={shown(text)}: is no path here ({getattr(error, 'strerror', error)})") from error
        if not there.is_dir():
            raise OneshotError(f"{key}={shown(text)}: {there} is a file, not a folder; set another folder")
        if key in STORES and not os.access(there, os.W_OK | os.X_OK):
            raise OneshotError(f"{key}={shown(text)}: {there} cannot be written; set another folder")


def nearest_folder(path: Path) -> Path:
    """The path itself, or what there is nearest above it."""
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())


def _check_precision(cfg: DictConfig) -> None:
    """Scaled gradients are unscaled once a step: SAM needs them twice, private training clips them before."""
    asking = [name for name in ("sam", "epsilon") if cfg.clients.get(name) is not None]
    if asking and str(cfg.trainer.get("precision")) in ("16-mixed", "16"):
        raise OneshotError(
            f"clients.{asking[0]}={cfg.clients[asking[0]]}: does not run with the scaled gradients of "
            f"trainer.precision={cfg.trainer.precision}; use trainer.precision=bf16-mixed or 32-true"
        )


def _check_held_out(cfg: DictConfig) -> None:
    """The data set holds a domain out; a partition only records which."""
    chosen = cfg.data.get("held_out")
    if "held_out" in cfg.partition and cfg.partition.held_out != chosen:
        raise OneshotError(
            f"partition.held_out={cfg.partition.held_out}: differs from data.held_out={chosen}, which it only records; "
            "set data.held_out alone"
        )
