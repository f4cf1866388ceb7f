"""The door: a composed configuration becomes an `Experiment`, or the line that says what is wrong with it."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.clients import KindName, client_nodes, kinds, server_models
from oneshot_fl.config.compose import architecture, plain, recipe, unresolved
from oneshot_fl.config.lent import asked, lent
from oneshot_fl.config.method import sources_of
from oneshot_fl.config.needs import source_needs
from oneshot_fl.config.record import record
from oneshot_fl.errors import OneshotError
from oneshot_fl.experiment import Evaluation, Experiment, Plots, Serving
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.parts.attacks import poisons
from oneshot_fl.parts.method import Method, WarmUpRecipe, of_source
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.cvae import Autoencoder
from oneshot_fl.phases.clients.train import ClientPlan, Kind
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.phases.distill import Distillation
from oneshot_fl.phases.diverged import RATE_KEYS
from oneshot_fl.phases.fidelity import FidelityReference
from oneshot_fl.phases.global_model import StudentPlan
from oneshot_fl.phases.prepare import DataPlan, PartitionPlan, ProxyPlan
from oneshot_fl.phases.privacy import Audit
from oneshot_fl.phases.recite import Recitation
from oneshot_fl.phases.stratify import Stratification
from oneshot_fl.phases.trainer import TrainerSettings, device_of
from oneshot_fl.recipe import NEEDS_OF_POOL, NEEDS_OF_RUN, NEEDS_OF_VOTES, Recipe

PATHS = ("root", "cache")
"""Keys of a data set that name folders."""
ALONE = "images"
"""What a source is called that is the only one and has no name."""
REFERENCE = re.compile(r"\$\{(\w[\w.]*)\}")
"""A value that is another key's."""
KINDS: dict[KindName, Kind] = {"classifier": Classifier(), "cvae": Autoencoder()}


def bind(cfg: DictConfig) -> Experiment:
    """Turn a composed configuration that `config.checks.check` has passed into what the program works on.

    Raises:
        OneshotError: naming the first key that is wrong and what would be right.
    """
    attack, serving = optional(cfg.attack), bind_serving(cfg)
    experiment = Experiment(
        **vars(serving),
        data=replace(_data(cfg.data), development=cfg.development),
        partition=PartitionPlan(cfg.partition.name, recipe(cfg.partition)),
        proxy=_proxy(cfg),
        clients=_poisoned(_clients(cfg), attack),
        attack=attack,
        communication_rounds=cfg.communication_rounds,
        plots=Plots(**plain(cfg.plots)),
    )
    _check_needs(experiment)
    return experiment


def bind_serving(cfg: DictConfig) -> Serving:
    """The server's half of a checked configuration.

    Raises:
        OneshotError: naming the first key that is wrong and what would be right.
    """
    trainer = TrainerSettings(**plain(cfg.trainer)).resolved()
    config = plain(cfg)
    config["trainer"]["precision"] = trainer.precision  # what is reported is what was used
    used = {**config, "trainer": {**config["trainer"], "accelerator": device_of(trainer).type}}
    return Serving(
        gate=optional(cfg.gate),
        generator=recipe(cfg.generator),
        stratification=_with_optimizer(Stratification, cfg.stratify),
        recitation=_recitation(cfg.recite),
        hearing=optional(cfg.hearing),
        method=_method(cfg),
        student=StudentPlan(tuple(map(_architecture, server_models(cfg))), cfg.clients.seed),
        distillation=_distillation(cfg.distill),
        calibrates=cfg.distill.calibrate,
        rate_keys=_rate_keys(cfg.method),
        evaluation=_evaluation(cfg),
        store=Path(cfg.store).expanduser().absolute(),
        workers=cfg.workers,
        trainer=trainer,
        loggers=tuple(_named(cfg.logger).values()),
        record=record(cfg, used),
        config=config,
    )


def _data(node: DictConfig) -> DataPlan:
    """Where its files lie, `~` means the user's home: torchvision reads it so, and nothing else does."""
    settings = plain(node)
    paths = {key: os.path.expanduser(path) for key in PATHS if isinstance(path := settings.get(key), str)}
    return DataPlan(node.name, recipe({**settings, **paths}))


def _proxy(cfg: DictConfig) -> ProxyPlan:
    settings = plain(cfg.proxy)
    name = settings.pop("data", None)
    if name is None:
        return ProxyPlan(cfg.proxy.name, recipe(settings))
    del settings["root"]
    return ProxyPlan(cfg.proxy.name, recipe(settings), partial(asked, name, _data(lent(cfg)).loaded))


def _clients(cfg: DictConfig) -> tuple[ClientPlan, ...]:
    pairs = list(zip(client_nodes(cfg), kinds(cfg), strict=True))
    different = {(node.name, kind): (node, kind) for node, kind in pairs}
    plans = {who: _client(cfg, *each) for who, each in different.items()}
    return tuple(plans[node.name, kind] for node, kind in pairs)


def _poisoned(plans: tuple[ClientPlan, ...], attack: Recipe[Any] | None) -> tuple[ClientPlan, ...]:
    """The last clients train on what an attack on training makes of their samples."""
    if attack is None or not poisons(attack):
        return plans
    first = len(plans) - attack.settings["clients"]
    return tuple(replace(plan, poison=attack) if k >= first else plan for k, plan in enumerate(plans))


def _client(cfg: DictConfig, node: DictConfig, kind: KindName) -> ClientPlan:
    own_rate_key = f"clients.lr_of.{node.name}" if node.name in (cfg.clients.lr_of or ()) else None
    return ClientPlan(_architecture(node), _training(cfg, kind, node.name), KINDS[kind], own_rate_key)


def _training(cfg: DictConfig, kind: KindName, name: str) -> Training:
    """How a client trains; an architecture may have a learning rate of its own."""
    settings, shared = plain(cfg.clients), ("kinds", "cvae", "lr_of", "of")
    own = {key: value for key, value in settings.items() if key not in shared}
    _check_private(own, kind)
    if kind == "cvae":
        own = {**settings["cvae"], "seed": own["seed"], "initial_weights": own["initial_weights"]}
    if (rate := (settings["lr_of"] or {}).get(name)) is not None:
        own["optimizer"] = {**own["optimizer"], "lr": rate}
    if own.get("epsilon") is not None:  # nothing else of the clients' training depends on how often it is repeated
        own["communication_rounds"] = cfg.communication_rounds
    return _with_optimizer(Training, own)


def _check_private(settings: Mapping[str, Any], kind: KindName) -> None:
    """Private training is wholly private, and has all that it needs."""
    given = {key: settings[key] for key in ("epsilon", "delta", "clip")}
    if set(given.values()) == {None}:
        return
    if missing := [key for key, value in given.items() if value is None]:
        raise OneshotError(f"clients.{missing[0]}=null: private training needs epsilon, delta and clip; use clients=dp")
    if kind == "cvae":
        raise OneshotError("clients.epsilon: clients with a CVAE cannot train privately; choose clients.kinds=null")
    if settings["sam"] is not None:
        raise OneshotError("clients.sam: takes two gradients a step, which private training does not; set it to null")


def _with_optimizer(settings: Callable[..., Any], node: Any) -> Any:
    """Settings of a phase that have an optimiser among them."""
    given = plain(node)
    return settings(**{**given, "optimizer": recipe(given["optimizer"])})


def _recitation(node: DictConfig) -> Recitation:
    own: dict[str, Any] = {"generator": recipe(node.generator), "objective": _named(node.objective)}
    return _with_optimizer(Recitation, {**plain(node), **own})


def _architecture(node: DictConfig) -> Architecture:
    return Architecture(recipe(node))


def optional(node: DictConfig | None) -> Recipe[Any] | None:
    """The recipe of a slot that may be empty; None where it is."""
    return recipe(node) if node is not None and "_target_" in node else None


def _named(nodes: DictConfig | None) -> dict[str, Recipe[Any]]:
    return {str(name): recipe(node) for name, node in (nodes or {}).items()}


def _method(cfg: DictConfig) -> Method:
    """The recipes of a method's slots; its student's optimiser and schedule are its own or those that all share."""
    slots = cfg.method
    if slots.source is None:
        return Method(slots.name, recipe(slots.init))
    return Method(
        name=slots.name,
        init=recipe(slots.init),
        ensemble=optional(slots.get("ensemble")),
        sources=_sources(slots.source),
        objective=_named(slots.get("objective")),
        pool=recipe(slots.pool),
        student=_named(slots.student),
        optimizer=recipe(slots.get("student_optimizer") or cfg.distill.student_optimizer),
        schedule=slots.get("student_schedule") or cfg.distill.student_schedule,
        perturb=optional(slots.get("perturb")),
        warm_up=_warm_up(slots.get("warm_up")),
    )


def _sources(node: DictConfig) -> dict[str, Recipe[Any]]:
    """One source, or several by name, which fill one pool."""
    return {ALONE: recipe(node)} if "_target_" in node else _named(node)


def _warm_up(node: DictConfig | None) -> WarmUpRecipe | None:
    return None if node is None else WarmUpRecipe(node.passes, _named(node.student), recipe(node.optimizer))


def _distillation(node: DictConfig) -> Distillation:
    own = ("rounds", "batch_size", "bank", "clients_at_once", "images", "seed", "held_out")
    return Distillation(**{key: value for key, value in plain(node).items() if key in own})


def _rate_keys(method: DictConfig) -> dict[str, str]:
    """The keys of the server's learning rates, by what they train."""
    keys = dict(RATE_KEYS)
    if method.get("student_optimizer") is not None:
        keys["student"] = "method.student_optimizer.lr"
    trained = {key: node for key, node in sources_of(method).items() if "optimizer" in node}
    return keys | {of_source(_name_of(key)): _rate_key(key, node) for key, node in trained.items()}


def _name_of(key: str) -> str:
    """What the source of a key is called, as in `_sources`."""
    return key.removeprefix("method.source").removeprefix(".") or ALONE


def _rate_key(key: str, source: Any) -> str:
    """That of a source's optimiser, which may be another key's (`${distill.generator_optimizer}`)."""
    other = REFERENCE.fullmatch(str(unresolved(source)["optimizer"]))
    return f"{other[1] if other else f'{key}.optimizer'}.lr"


def _evaluation(cfg: DictConfig) -> Evaluation:
    node = cfg.evaluate
    _check_validation(cfg)
    return Evaluation(node.batch_size, _named(node.ensembles), _fidelity(cfg), _audit(cfg), node.validation)


def _check_validation(cfg: DictConfig) -> None:
    """There are images that the student is not trained on."""
    of, held_out = cfg.evaluate.validation, cfg.distill.held_out
    if of is not None and "classifier" not in kinds(cfg):
        raise OneshotError(
            f"evaluate.validation={of}: measures how well the student learned of classifiers, and no client trains one "
            "(clients.kinds); set evaluate.validation=null"
        )
    if of == "synthetic" and (cfg.method.source is None or not held_out):
        raise OneshotError(
            f"evaluate.validation=synthetic: none is held out (method={cfg.method.name}, distill.held_out="
            f"{held_out}); set distill.held_out=0.1 with a method that makes images, or evaluate.validation=proxy"
        )
    if of == "proxy" and "proxy" in source_needs(cfg):
        raise OneshotError(
            f"evaluate.validation=proxy: method={cfg.method.name} trains on the proxy images; set "
            "evaluate.validation=synthetic and distill.held_out=0.1, which holds out part of them"
        )


def _fidelity(cfg: DictConfig) -> FidelityReference | None:
    """What synthetic images will be measured by; None where that is off."""
    node = cfg.evaluate.fidelity
    if node is None:
        return None
    if node.samples > cfg.distill.images:
        raise OneshotError(
            f"evaluate.fidelity.samples={node.samples}: more than the synthetic images that are kept (distill.images="
            f"{cfg.distill.images}); raise that or lower this"
        )
    return FidelityReference(**_reference(cfg, node, "samples"))


def _audit(cfg: DictConfig) -> Audit | None:
    """How privacy will be measured; None where that is off."""
    node = cfg.evaluate.privacy
    return None if node is None else Audit(**_reference(cfg, node, "references", "samples"))


def _reference(cfg: DictConfig, node: DictConfig, *others: str) -> dict[str, Any]:
    """A classifier that something is measured by, how it is trained, and what else is set beside that."""
    settings = plain(node)
    chosen = server_models(cfg)[0] if node.model is None else architecture(node.model)
    own = {key: value for key, value in settings.items() if key not in ("model", *others)}
    known = {key: settings[key] for key in others}
    return {"architecture": _architecture(chosen), "training": _with_optimizer(Training, own), **known}


WITHOUT_ASKING = NEEDS_OF_RUN | NEEDS_OF_VOTES | NEEDS_OF_POOL | {"proxy"}
"""Needs that a run meets by itself or that have checks of their own."""


def _check_needs(experiment: Experiment) -> None:
    """A part that needs what no client uploads is found before training."""
    uploaded = {plan.kind.uploads for plan in experiment.clients}
    known = {
        *WITHOUT_ASKING,
        *uploaded,
        *({"guidance", "recitals", "label_counts"} if "classifiers" in uploaded else ()),
    }
    if "student" in experiment.needs and (own := experiment.method.ensemble) is not None:
        raise OneshotError(
            f"method.ensemble={own.name}: asks the student, and a teacher is asked while that is still taught; it is "
            "only a row of evaluate.ensembles; choose another, for instance method/ensemble=entropy"
        )
    if missing := sorted(experiment.needs - known):
        raise OneshotError(
            f"method={experiment.method.name}: a part of it needs {', '.join(missing)}, which this run has not; choose "
            "clients that upload it (clients=default: classifiers, clients=half_cvae: both, clients=all_cvae: decoders)"
        )
