"""Checks before any training, and plain words for the errors of composing a configuration."""

import os
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.clients import client_nodes, kinds, nodes_of, server_models
from oneshot_fl.config.compose import architecture, build, choices, did_you_mean, plain
from oneshot_fl.config.explain import explain, no_such_key
from oneshot_fl.config.groups import CALLED, check_called, check_method, check_node, check_tables, check_top
from oneshot_fl.config.hostile import check_attack
from oneshot_fl.config.images import check_images, sources_of
from oneshot_fl.config.keys import OF_OTHERS, all_keys, groups
from oneshot_fl.config.lent import check_lent
from oneshot_fl.config.rules import MISSING, check_group, has_no_value, target_of
from oneshot_fl.config.training import check_no_idle, check_rates
from oneshot_fl.config.trial import check_sizes, has_features, shape_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import shown
from oneshot_fl.recipe import needs_of

TERMS = ("objective", "student")
"""The slots of a method that hold named loss terms."""

STORES = ("store", "data.cache")
FOLDERS = (*STORES, "data.root", "proxy.root")


def check(cfg: DictConfig) -> None:
    """Everything that can be known to be wrong before data are read.

    Raises:
        OneshotError: naming the first key that is wrong and what would be right.
    """
    settings = _resolved(cfg)
    _check_unknown(settings)
    _check_groups(settings)
    _check_missing(cfg)
    check_top(settings)
    check_tables(settings)
    check_method(settings["method"])
    check_called(settings)
    check_images(settings)
    _check_teacher(settings)
    _check_names(settings)
    check_rates(cfg)
    check_attack(settings["attack"], kinds(cfg))
    check_no_idle(cfg)
    _check_precision(cfg)
    _check_held_out(cfg)
    _check_lengths(settings)
    _check_folders(settings)
    check_lent(cfg)
    _check_kinds(cfg)
    _check_architectures(cfg)
    check_sizes(settings, [*client_nodes(cfg), *server_models(cfg)])
    _check_features(cfg, settings)


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
        node = reduce(lambda inner, name: inner.get(name) or {}, group.split("."), settings) if group else settings
        names = [f"{group}.{name}".strip(".") for name in (node if isinstance(node, dict) else ())]
        if unknown := [name for name in names if name not in known]:
            raise OneshotError(no_such_key(unknown[0], known))


def _check_groups(settings: dict[Any, Any]) -> None:
    """A name or number where a group of settings belongs; some slots of a method may be null."""
    for group in groups():
        *outer, name = group.split("/")
        node: Any = settings
        for part in outer:
            node = node.get(part) if isinstance(node, dict) else None
        if isinstance(node, dict) and node.get(name) is not None:
            check_group(group.replace("/", "."), node[name])


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


def _check_teacher(settings: Mapping[str, Any]) -> None:
    method, asked = settings["method"], asking(settings, "teacher")
    if asked and method["source"] is not None and method.get("ensemble") is None:
        raise OneshotError(
            f"method.ensemble=null: {asked[0]} asks a teacher; choose one, for instance method/ensemble=uniform, or "
            f"leave that term out (~{asked[0]})"
        )


def _check_lengths(settings: dict[Any, Any]) -> None:
    """One mean and one deviation, or one per channel."""
    data = settings["data"]
    channels = shape_of(data)[0]
    for key in ("mean", "std"):
        if len(data.get(key, [0])) not in (1, channels):
            raise OneshotError(
                f"data.{key}={data[key]}: must be one number, or one for each of the {channels} channels of "
                f"data={data['name']}"
            )


def _check_folders(settings: dict[Any, Any]) -> None:
    """Folders that are files, and stores that cannot be written."""
    for key in FOLDERS:
        text = reduce(lambda node, name: node.get(name) or {}, key.split("."), settings)
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


def _check_kinds(cfg: DictConfig) -> None:
    """A method needs clients that upload what it works on."""
    wanted, needs = set(kinds(cfg)), method_needs(cfg)
    if "decoders" in needs and "cvae" not in wanted:
        raise OneshotError(
            f"method={cfg.method.name}: draws its images from clients' decoders, and no client uploads one; choose "
            "clients=half_cvae or clients=all_cvae"
        )
    if "own_decoder" in needs and len(_latents(cfg)) > 1:
        raise OneshotError(
            f"method={cfg.method.name}: the server's decoder and the clients' must draw from noise of one length, not "
            f"{' and '.join(map(str, _latents(cfg)))}; choose one VAE for all clients, for instance cvae=fedcvae"
        )
    if "classifiers" in needs and "classifier" not in wanted:
        raise OneshotError(
            f"method={cfg.method.name}: needs clients that upload classifiers, and none does; choose clients=half_cvae "
            "or clients=default"
        )
    if "clients_start" in needs and cfg.clients.initial_weights == "own":
        raise OneshotError(
            "clients.initial_weights=own: there are no weights that all clients began at, which method/init="
            "as_clients_began takes; choose method/init=fresh, or clients.initial_weights=shared"
        )
    if cfg.communication_rounds > 1 and "cvae" in wanted:
        raise OneshotError(
            f"communication_rounds={cfg.communication_rounds}: clients with a VAE cannot begin at the server's model; "
            "use communication_rounds=1"
        )


def method_needs(cfg: DictConfig) -> frozenset[str]:
    """What the method's slots need; where it has an ensemble, classifiers to ask."""
    init, asks = cfg.method.get("init"), cfg.method.get("ensemble") is not None
    of_init = frozenset() if init is None else _needs("method.init", init)
    return of_init | source_needs(cfg) | frozenset({"classifiers"} if asks else ())


def source_needs(cfg: DictConfig) -> frozenset[str]:
    """What the method's sources of images need; nothing where there is none."""
    return frozenset().union(*(_needs(key, each) for key, each in sources_of(cfg.method).items()))


def _needs(key: str, node: Any) -> frozenset[str]:
    """What a part declares that it needs, without making it."""
    return needs_of(target_of(key, plain(node)))


def asking(settings: Mapping[str, Any], need: str) -> list[str]:
    """Keys of ensembles, and of loss terms with a weight, that declare a need."""
    method, rows = settings["method"], settings["evaluate"]["ensembles"]
    parts = {
        "method.ensemble": method.get("ensemble"),
        **{f"method.{slot}.{name}": term for slot in TERMS for name, term in (method.get(slot) or {}).items()},
        **{f"evaluate.ensembles.{name}": row for name, row in rows.items()},
    }
    weighed = {key: part for key, part in parts.items() if part is not None and part.get("weight") != 0}
    return [key for key, part in weighed.items() if need in needs_of(target_of(key, part))]


def no_features(key: str, who: str) -> str:
    """What to say where a part looks into classifiers of which one has nothing to look at."""
    remedy = "choose method/ensemble=entropy" if key == "method.ensemble" else f"leave it out (~{key})"
    return f"{key}: looks at what enters the last linear layer of every classifier, and {who} has none; {remedy}"


def _check_features(cfg: DictConfig, settings: Mapping[str, Any]) -> None:
    for key in asking(settings, "features"):
        for node in nodes_of(cfg, "classifier"):
            if not has_features(node, settings["data"]):
                raise OneshotError(no_features(key, node.name))


def _latents(cfg: DictConfig) -> list[int]:
    """The different lengths of the noise of clients' VAEs."""
    return sorted({node.latent for node in nodes_of(cfg, "cvae")})


def _check_architectures(cfg: DictConfig) -> None:
    needs = _needs("method.init", cfg.method.init)
    servers, classifiers = server_models(cfg), nodes_of(cfg, "classifier")
    clients_differ = any(plain(own) != plain(classifiers[0]) for own in classifiers)
    some_differ = clients_differ or any(plain(own) != plain(servers[0]) for own in classifiers)
    if "same_architecture" in needs and some_differ and (len(servers) == 1 or "chain" in needs):
        names = ", ".join(dict.fromkeys(model.name for model in (*classifiers, *servers)))
        per_architecture = bool(cfg.method.get("per_architecture")) and "chain" not in needs
        raise OneshotError(
            f"method={cfg.method.name}: averaging needs one architecture for clients and server, not {names}; "
            f"choose one (model=cnn2 server_model=null{', which averages each architecture' * per_architecture}) or a "
            "method that distils (method=dense, method=fedhydra)"
        )
    if cfg.distill.bank == "stacked" and clients_differ:
        raise OneshotError("distill.bank=stacked: clients have different architectures; use distill.bank=loop or auto")
    if cfg.communication_rounds > 1 and some_differ:
        raise OneshotError(
            f"communication_rounds={cfg.communication_rounds}: clients begin the next round at the server's model, so "
            "clients and server need one architecture (model=cnn2 server_model=null)"
        )
    if "chain" in needs:
        from oneshot_fl.data.dataset import DataSpec  # torch: not before it is needed
        from oneshot_fl.methods.ot import require_chain

        require_chain(build(servers[0], spec=DataSpec(channels=3, size=32, classes=10, mean=(0,) * 3, std=(1,) * 3)))
