"""Checks before any training, and plain words for the errors of composing a configuration."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.clients import client_nodes, kinds, nodes_of, server_models
from oneshot_fl.config.compose import build, config_dir, did_you_mean, plain, recipe, search_path
from oneshot_fl.config.rules import NOT_NEGATIVE, POSITIVE, POSITIVE_OR_NULL, RULES
from oneshot_fl.errors import OneshotError


def check(cfg: DictConfig) -> None:
    """Everything that can be known to be wrong before data are read.

    Raises:
        OneshotError: naming the first key that is wrong and what would be right.
    """
    _check_unknown(cfg)
    _check_groups(cfg)
    alpha = POSITIVE_OR_NULL if cfg.partition.name == "lognormal" else POSITIVE
    for key, rule in {**RULES, "partition.alpha": alpha}.items():
        value = _select(cfg, key)
        if value is not ABSENT and not rule.holds(value):
            raise OneshotError(f"{key}={value}: must be {rule.says}")
    _check_terms(cfg)
    client_nodes(cfg)  # what is wrong with the kinds or names of models is told before what is missing
    _check_missing(cfg)
    _check_precision(cfg)
    _check_held_out(cfg)
    _check_kinds(cfg)
    _check_architectures(cfg)


ABSENT = object()


def _select(cfg: DictConfig, key: str) -> Any:
    try:
        value = OmegaConf.select(cfg, key, default=ABSENT)
    except OmegaConfBaseException as error:
        raise OneshotError(f"{key}: {str(error).splitlines()[0]}") from error
    return value


def _groups() -> Iterable[str]:
    """All config groups as paths: `data`, `method/ensemble`, ..."""
    root = config_dir()
    return (
        str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_dir() and any(path.glob("*.yaml"))
    )


def _check_unknown(cfg: DictConfig) -> None:
    """Keys appended with `+` where nothing would read them; nodes with a `_target_` are checked when they are built."""
    known = _all_keys()
    for group in ("", "budget", "clients", "stratify", "distill", "evaluate.fidelity", "method"):
        node = OmegaConf.select(cfg, group) if group else cfg
        names = map(str, node) if OmegaConf.is_dict(node) else ()
        unknown = [name for name in (f"{group}.{name}".strip(".") for name in names) if name not in known]
        if unknown:
            raise OneshotError(_no_such_key(unknown[0], known))


def _no_such_key(key: str, known: tuple[str, ...]) -> str:
    if key in known:
        group = key.rsplit(".", 1)[0].replace(".", "/")
        return (
            f"{key}: the chosen {group} has no such key, another one has; --cfg job prints what there is (if a sweep "
            f"chooses the {group}, write ++{key}=...)"
        )
    return f"{key}: there is no such key{did_you_mean(key, known)}; python -m oneshot_fl --cfg job prints all keys"


def _check_groups(cfg: DictConfig) -> None:
    for group in _groups():
        key = group.replace("/", ".")
        value = _select(cfg, key)
        if isinstance(value, str):
            raise OneshotError(
                f"{key}={value}: {key} is a group of settings, not a value; to choose another one write {group}={value}"
            )


def _check_terms(cfg: DictConfig) -> None:
    for slot in ("objective", "student", "warm_up.student"):
        for name, term in (OmegaConf.select(cfg.method, slot) or {}).items():
            key = f"method.{slot}.{name}"
            if not OmegaConf.is_dict(term) or "_target_" not in term:
                raise OneshotError(f"{key}={term}: must be a term with a weight; write {key}.weight={term}")
            if not NOT_NEGATIVE.holds(term.weight):
                raise OneshotError(f"{key}.weight={term.weight}: must be {NOT_NEGATIVE.says}")
            if "temperature" in term and not POSITIVE.holds(term.temperature):
                raise OneshotError(f"{key}.temperature={term.temperature}: must be {POSITIVE.says}")


def _check_missing(cfg: DictConfig) -> None:
    missing = sorted(OmegaConf.missing_keys(cfg) - {"model.names"})
    if missing:
        raise OneshotError(_has_no_value(missing[0]))


def _has_no_value(key: str) -> str:
    return f"{key}: has no value; set it on the command line, {key}=..."


def _check_precision(cfg: DictConfig) -> None:
    """Scaled gradients are unscaled once a step, SAM needs them twice."""
    if cfg.clients.get("sam") is not None and str(cfg.trainer.get("precision")) in ("16-mixed", "16"):
        raise OneshotError(
            f"clients.sam={cfg.clients.sam}: does not run with the scaled gradients of trainer.precision="
            f"{cfg.trainer.precision}; use trainer.precision=bf16-mixed or 32-true"
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
    wanted = set(kinds(cfg))
    if "decoders" in source_needs(cfg) and "cvae" not in wanted:
        raise OneshotError(
            f"method={cfg.method.name}: draws its images from clients' decoders, and no client uploads one; choose "
            "clients=half_cvae or clients=all_cvae"
        )
    if "own_decoder" in source_needs(cfg) and len(_latents(cfg)) > 1:
        raise OneshotError(
            f"method={cfg.method.name}: the server's decoder and the clients' must draw from noise of one length, not "
            f"{' and '.join(map(str, _latents(cfg)))}; choose one VAE for all clients, for instance cvae=fedcvae"
        )
    asks = cfg.method.get("ensemble") is not None or "same_architecture" in recipe(cfg.method.init).needs
    if asks and "classifier" not in wanted:
        raise OneshotError(
            f"method={cfg.method.name}: needs clients that upload classifiers, and none does; choose clients=half_cvae "
            "or clients=default"
        )
    if cfg.communication_rounds > 1 and "cvae" in wanted:
        raise OneshotError(
            f"communication_rounds={cfg.communication_rounds}: clients with a VAE cannot begin at the server's model; "
            "use communication_rounds=1"
        )


def source_needs(cfg: DictConfig) -> frozenset[str]:
    """What the method's sources of images need; nothing where there is none."""
    node = cfg.method.source
    nodes = [] if node is None else [node] if "_target_" in node else list(node.values())
    return frozenset().union(*(recipe(each).needs for each in nodes))


def _latents(cfg: DictConfig) -> list[int]:
    """The different lengths of the noise of clients' VAEs."""
    return sorted({node.latent for node in nodes_of(cfg, "cvae")})


def _check_architectures(cfg: DictConfig) -> None:
    needs, servers, classifiers = recipe(cfg.method.init).needs, server_models(cfg), nodes_of(cfg, "classifier")
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


def explain(error: Exception) -> str:
    """One plain line for an error that Hydra or OmegaConf raised while composing the configuration."""
    text = " ".join(str(error).split())
    if override := getattr(error, "override", None):
        return f"{override}: cannot be read as key=value; put it in quotes where it holds brackets, commas or spaces"
    if match := re.search(r"Could not override '([^']+)'", text):
        return _no_such_key(match[1], _all_keys())
    if match := re.search(r"Could not find '([^']+)' Available options in '([^']+)': (.*?) Config search", text):
        return _no_such_choice(match[2], match[1].removeprefix(f"{match[2]}/"), match[3].split())
    if match := re.search(r"Missing mandatory value: (\S+)", text):
        return _has_no_value(match[1])
    return re.sub(r" See https?://\S+.*", "", text)


def _no_such_choice(group: str, name: str, options: list[str]) -> str:
    if group == "experiment":  # the only group whose choices also lie in folders: experiment=fedhydra/table1
        folders = {path.name: path for path in sorted((config_dir() / group).iterdir()) if path.is_dir()}
        folder = name.partition("/")[0]
        if folder in folders:
            options = sorted(f"{folder}/{path.stem}" for path in folders[folder].glob("*.yaml"))
        else:
            options += [f"{other}/..." for other in folders]
    return f"{group}={name}: there is no such choice{did_you_mean(name, options)}; choose from {', '.join(options)}"


def _all_keys() -> tuple[str, ...]:
    """Every key that some choice of the configuration has, and every group."""
    return _keys_below(tuple(search_path()))


@cache  # a sweep checks every job
def _keys_below(folders: tuple[str, ...]) -> tuple[str, ...]:
    keys = {group for path in _groups() for group in (path, path.replace("/", "."))}
    files = [(Path(folder), path) for folder in folders for path in Path(folder).rglob("*.yaml")]
    for folder, path in files:
        package = ".".join(path.relative_to(folder).parts[:-1])
        if package.startswith("experiment"):  # they set keys of the others
            continue
        own = {f"{package}.{key}".strip(".") for key in _flat(OmegaConf.to_container(OmegaConf.load(path)))}
        keys |= {key for key in own if not key.startswith("hydra") and "defaults" not in key}
    return tuple(sorted(keys))


def _flat(node: Any, prefix: str = "") -> list[str]:
    """The dotted names of all keys below a dictionary."""
    if not isinstance(node, dict):
        return []
    names = {f"{prefix}.{key}".strip("."): value for key, value in node.items()}
    return [*names, *(inner for name, value in names.items() for inner in _flat(value, name))]
