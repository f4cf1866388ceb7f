"""From configuration to parts: data, plans for the clients, the method's slots, ensembles to test."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from oneshot_fl.config.compose import (
    Kind,
    architecture,
    build,
    client_nodes,
    composed,
    kinds,
    nodes_of,
    plain,
    server_models,
    source_needs,
    takes,
    without_parts,
)
from oneshot_fl.data.dataset import Dataset, DataSpec
from oneshot_fl.data.partition import Partition
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import all_alike, has_batch_norm
from oneshot_fl.parts.ensembles import NoTeacher
from oneshot_fl.parts.slots import Loop, Method, WarmUp
from oneshot_fl.parts.sources import Source
from oneshot_fl.parts.terms import Objective
from oneshot_fl.parts.uploads import Decoder, Uploads
from oneshot_fl.parts.view import EnsembleFunction
from oneshot_fl.phases.clients.train import ClientPlan, TrainedClient, Training
from oneshot_fl.phases.fidelity import FidelityReference
from oneshot_fl.phases.trainer import OptimizerFactory, device_of, precision_here
from oneshot_fl.store import Store


@dataclass(frozen=True)
class RunData:
    """What a run begins with: the clients' data, who has which, and the server's own images."""

    data: Dataset
    partition: Partition
    proxy: Proxy
    fingerprint: str
    """Of the whole data set, also of what a proxy has taken away."""


def load_data(cfg: DictConfig) -> RunData:
    """The data set on the run's device without what a proxy takes away, and its split among the clients."""
    cached = {"cache": str(_store_root(cfg))} if "cache" in cfg.data else {}
    whole: Dataset = build(cfg.data, **cached)
    fingerprint = whole.fingerprint  # before anything moves, which takes it along
    data, proxy = _make_proxy(cfg, whole)
    indices = build(cfg.partition, labels=data.train_labels.numpy(), **_domains(cfg, data))
    device = device_of(plain(cfg.trainer))
    return RunData(data.to(device), Partition(cfg.partition.name, indices), proxy.to(device), fingerprint)


def _make_proxy(cfg: DictConfig, data: Dataset) -> tuple[Dataset, Proxy]:
    settings = plain(cfg.proxy)
    if (name := settings.pop("data", None)) is None:
        return build(settings)(data)
    node, root = plain(composed(f"data={name}").data), settings.pop("root")
    return build(settings)(data, other=build({**node, **({"root": root} if "root" in node else {})}))


def uses_proxy(cfg: DictConfig) -> bool:
    """Whether the method's images are the server's own."""
    return "proxy" in source_needs(cfg)


def _domains(cfg: DictConfig, data: Dataset) -> dict[str, Any]:
    """The domain of each training sample, for a partition that takes it.

    Raises:
        OneshotError: it does, and the data set has no domains.
    """
    if not takes(cfg.partition, "domains"):
        return {}
    if data.train_domains is None:
        raise OneshotError(
            f"partition={cfg.partition.name}: data={cfg.data.name} has no domains; choose data=pacs, digit_domains or "
            "image_domains, or another partition, for instance partition=dirichlet"
        )
    return {"domains": data.train_domains.numpy()}


def make_store(cfg: DictConfig) -> Store:
    """The store, with what every result depends on besides its own inputs.

    Raises:
        OneshotError: the folder cannot be made or written.
    """
    root = _store_root(cfg)
    try:
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        raise OneshotError(
            f"store={cfg.store}: {root} cannot be written ({error.strerror}); set another folder"
        ) from error
    trainer = plain(cfg.trainer)
    arithmetic = {"precision": precision_here(trainer), "channels_last": trainer["channels_last"]}
    if trainer["matmul_precision"] != "highest":  # results of before there was a choice stay good
        arithmetic["matmul_precision"] = trainer["matmul_precision"]
    return Store(root, {"torch": torch.__version__, "device": device_of(trainer).type, **arithmetic})


def _store_root(cfg: DictConfig) -> Path:
    return Path(cfg.store).expanduser().absolute()


def make_plan(node: DictConfig, spec: DataSpec, kind: Kind = "classifier") -> ClientPlan:
    """How to build and name a model of one architecture."""
    return ClientPlan(node.name, plain(node), partial(build, node, spec=spec), kind)


def make_optimizer(node: Mapping[str, Any] | DictConfig) -> OptimizerFactory:
    """An optimiser that waits for parameters, stepping all of them in one kernel where its class can.

    With 1.8 million parameters a step of Adam on a CPU takes 1.4 ms so instead of 9.5.
    """
    factory = build(node)
    return factory if "fused" in factory.keywords or not takes(node, "fused") else partial(factory, fused=True)


def make_trainings(cfg: DictConfig) -> dict[str, Training]:
    """How classifiers and VAEs are trained, and by its name an architecture that has a learning rate of its own."""
    clients = plain(cfg.clients)
    own = {key: value for key, value in clients.items() if key not in ("kinds", "cvae", "lr_of", "of")}
    settings = {"classifier": own, "cvae": {**clients["cvae"], "seed": own["seed"]}}
    for node, kind in zip(client_nodes(cfg), kinds(cfg), strict=True):
        if (rate := (clients.get("lr_of") or {}).get(node.name)) is not None:
            settings[node.name] = {**settings[kind], "optimizer": {**settings[kind]["optimizer"], "lr": rate}}
    return {name: Training(each, make_optimizer(each["optimizer"])) for name, each in settings.items()}


def make_fidelity_reference(cfg: DictConfig, data: Dataset) -> FidelityReference | None:
    """What synthetic images will be measured by; None where that is off, or the method makes none.

    Raises:
        OneshotError: more images are to be compared than are kept or half of the training set has, or the classifier
            has no features.
    """
    wanted = cfg.evaluate.fidelity
    if wanted is None or cfg.method.source is None:
        return None
    _check_samples(cfg, len(data.train_labels))
    plan = make_plan(server_models(cfg)[0] if wanted.model is None else architecture(wanted.model), data.spec)
    if not any(isinstance(module, nn.Linear) for module in plan.initial_model(wanted.seed).modules()):
        raise OneshotError(
            f"evaluate.fidelity.model={plan.name}: has no linear layer, and what enters the last one are the features; "
            "choose another, for instance cnn2"
        )
    own = {key: value for key, value in plain(wanted).items() if key not in ("model", "samples")}
    return FidelityReference(plan, Training(own, make_optimizer(wanted.optimizer)), wanted.samples, wanted.seed)


def _check_samples(cfg: DictConfig, training_images: int) -> None:
    samples, kept = cfg.evaluate.fidelity.samples, cfg.distill.images
    if samples > kept:
        raise OneshotError(
            f"evaluate.fidelity.samples={samples}: more than the synthetic images that are kept (distill.images="
            f"{kept}); raise that or lower this"
        )
    if samples > training_images // 2:
        raise OneshotError(
            f"evaluate.fidelity.samples={samples}: needs twice as many training images, and data={cfg.data.name} has "
            f"{training_images} for the clients; set it to {training_images // 2} or less"
        )


def make_uploads(clients: list[TrainedClient], plans: list[ClientPlan], U: torch.Tensor | None) -> Uploads:
    """What the server receives of the clients, by kind."""
    classifiers = [client for client in clients if client.kind == "classifier"]
    decoders = [
        Decoder(client.model, plan.model_settings["latent"], torch.tensor(client.label_counts))
        for client, plan in zip(clients, plans, strict=True)
        if client.kind == "cvae"
    ]
    return Uploads([client.model for client in classifiers], [client.samples for client in classifiers], U, decoders)


def make_loggers(cfg: DictConfig, folder: Path) -> list[Any]:
    """The loggers of a run; W&B gets the resolved configuration too."""
    extras = {"wandb": {"config": plain(cfg)}}
    return [build(node, folder=folder, **extras.get(str(name), {})) for name, node in cfg.logger.items()]


def needs(node: DictConfig | None) -> frozenset[str]:
    """What an ensemble that waits for the uploads needs besides them; nothing where there is none."""
    return build(node).func.needs if node is not None else frozenset()


def make_method(cfg: DictConfig, spec: DataSpec, uploads: Uploads, proxy: Proxy) -> Method:
    """The method's slots as parts."""
    loop = None if cfg.method.source is None else make_loop(cfg, spec, uploads, proxy)
    return Method(build(cfg.method.init), loop)


def make_loop(cfg: DictConfig, spec: DataSpec, uploads: Uploads, proxy: Proxy) -> Loop:
    """The slots of a method that generates and distils."""
    slots, warm_up = cfg.method, _make_warm_up(cfg, uploads)
    optimizers = {
        "source": slots.source.get("optimizer"),
        "student": _of_student(cfg, "student_optimizer"),
        "warm_up": slots.warm_up.optimizer if warm_up else None,
    }
    return Loop(
        ensemble=build(slots.ensemble)(uploads) if slots.get("ensemble") else NoTeacher(),
        source=_make_source(cfg, spec, uploads, proxy),
        objective=Objective(build(slots.objective)),
        pool=build(slots.pool, spec=spec),
        student=Objective(build(slots.student)),
        optimizers={who: make_optimizer(node) for who, node in optimizers.items() if node is not None},
        perturb=build(slots.perturb)(spec) if slots.get("perturb") else None,
        schedule=_of_student(cfg, "student_schedule"),
        warm_up=warm_up,
    )


def _make_warm_up(cfg: DictConfig, uploads: Uploads) -> WarmUp | None:
    """The method's, where the clients' architectures differ: there is no average of all of them to begin at."""
    slot = cfg.method.get("warm_up")
    if slot is None or all_alike(uploads.models):
        return None
    return WarmUp(slot.passes, Objective(build(slot.student)))


def _make_source(cfg: DictConfig, spec: DataSpec, uploads: Uploads, proxy: Proxy) -> Source:
    part = build(without_parts(cfg.method.source))
    if "proxy" in part.func.needs:
        return part(proxy, spec=spec)
    if "own_decoder" in part.func.needs:
        return part(uploads.decoders, spec=spec, make=partial(build, nodes_of(cfg, "cvae")[0], spec=spec))
    if "decoders" in part.func.needs:
        return part(uploads.decoders, spec=spec)
    return part(build(cfg.method.source.generator, spec=spec), classes=spec.classes)


def _of_student(cfg: DictConfig, key: str) -> Any:
    """The method's own choice where it has one, else the one that all methods share."""
    return cfg.method.get(key) or cfg.distill[key]


def make_ensembles(cfg: DictConfig, uploads: Uploads, learned: dict[str, torch.Tensor]) -> dict[str, EnsembleFunction]:
    """The ensembles to test: those that evaluation names, as far as they can be built, and the method's own."""
    if not uploads.models:
        return {}
    rows = {
        str(name): build(node)(uploads)
        for name, node in cfg.evaluate.ensembles.items()
        if uploads.guidance is not None or "guidance" not in needs(node)
    }
    own = cfg.method.get("ensemble")
    if own is not None:
        rows[own.name] = build(own)(uploads)
        if learned:  # nothing without a round
            rows[own.name].load_state_dict(learned)
    return rows


def notes(cfg: DictConfig, uploads: Uploads) -> list[str]:
    """What a user should know although it is no mistake."""
    terms = cfg.method.get("objective") or {}
    idle = [name for name, term in terms.items() if term.weight and "statistics" in build(term).needs]
    if idle and not any(map(has_batch_norm, uploads.models)):
        return [f"no client has batch normalisation, so method.objective.{idle[0]} is 0 (model=cnn2, cnn3 have it)"]
    return []
