"""The data flow: partition -> local training -> [stratify] -> distill -> evaluate -> report."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from oneshot_fl.artifacts import Store
from oneshot_fl.config import build, client_models, plain, server_model
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset, DataSpec
from oneshot_fl.data.partition import Partition
from oneshot_fl.models.bank import has_batch_norm
from oneshot_fl.parts.terms import Objective
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.parts.view import Combine
from oneshot_fl.phases.clients import ClientPlan, TrainedClient, train_clients
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.distill import Loop, Method, Server, distill
from oneshot_fl.phases.evaluate import evaluate
from oneshot_fl.phases.stratify import Guidance, stratify
from oneshot_fl.phases.trainer import device_of
from oneshot_fl.reporting.loggers import RunLog
from oneshot_fl.reporting.outcome import Outcome
from oneshot_fl.reporting.plots import draw_all
from oneshot_fl.reporting.progress import Progress
from oneshot_fl.reporting.summary import final_metrics, print_summary, summarise, write_results


def run(cfg: DictConfig, folder: Path) -> dict[str, Any]:
    """One run: everything from the data set to `summary.json` in `folder`; returns the summary."""
    begun = time.perf_counter()
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    data, partition = load_data(cfg)
    plans = [_plan(node, data) for node in client_models(cfg)]
    sinks = [build(node, folder=folder, **_sink_extras(cfg, name)) for name, node in cfg.logger.items()]
    with RunLog(sinks) as log, Progress(console) as progress:
        context = Context(_store(cfg), plain(cfg.trainer), progress, log)
        clients = train_clients(
            data,
            partition,
            plans,
            settings=plain(cfg.clients),
            optimizer=build(cfg.clients.optimizer),
            context=context,
        )
        guidance = _guidance(cfg, data, clients, context) if "guidance" in _needs(cfg.method.get("ensemble")) else None
        uploads = Uploads([c.model for c in clients], partition.sizes, guidance.U if guidance else None)
        test = ImageBatches(data.test_images, data.test_labels, spec=data.spec, batch_size=cfg.evaluate.batch_size)
        for note in _notes(cfg, uploads):
            console.print(f"note: {note}")
        server = _distill(cfg, data, test, clients, uploads, guidance, context)
        ensembles = _ensembles(cfg, uploads, server)
        accuracies = evaluate(test, uploads.models, server.model, ensembles, context=context)
        outcome = Outcome(data, partition, clients, guidance, server, accuracies)
        summary = summarise(cfg, outcome, seconds=time.perf_counter() - begun)
        write_results(folder, cfg, summary, server.model)
        pictures = draw_all(folder, outcome)
        log.log(final_metrics(summary), len(server.history))
        log.pictures(pictures)
    print_summary(console, summary, [folder / "summary.json", *pictures.values()])
    return summary


def load_data(cfg: DictConfig) -> tuple[Dataset, Partition]:
    """The data set on the run's device, and its split among the clients."""
    cached = {"cache": str(_store_root(cfg))} if "cache" in cfg.data else {}
    data: Dataset = build(cfg.data, **cached)
    indices = build(cfg.partition, labels=data.train_labels.numpy())
    return data.to(device_of(plain(cfg.trainer))), Partition(cfg.partition.name, indices)


def _store_root(cfg: DictConfig) -> Path:
    return Path(cfg.store).expanduser().absolute()


def _store(cfg: DictConfig) -> Store:
    trainer = plain(cfg.trainer)
    device = device_of(trainer).type
    return Store(_store_root(cfg), {"torch": torch.__version__, "device": device, "precision": trainer["precision"]})


def _plan(node: DictConfig, data: Dataset) -> ClientPlan:
    return ClientPlan(node.name, plain(node), partial(build, node, spec=data.spec))


def _sink_extras(cfg: DictConfig, name: str) -> dict[str, Any]:
    return {"config": OmegaConf.to_container(cfg, resolve=True)} if name == "wandb" else {}


def _needs(node: DictConfig | None) -> frozenset[str]:
    return build(node).func.needs if node is not None else frozenset()


def _guidance(cfg: DictConfig, data: Dataset, clients: list[TrainedClient], context: Context) -> Guidance:
    return stratify(
        clients,
        classes=data.spec.classes,
        build_generator=partial(build, cfg.generator, spec=data.spec),
        generator_settings=plain(cfg.generator),
        settings=plain(cfg.stratify),
        optimizer=build(cfg.stratify.optimizer),
        context=context,
    )


def _distill(
    cfg: DictConfig,
    data: Dataset,
    test: ImageBatches,
    clients: list[TrainedClient],
    uploads: Uploads,
    guidance: Guidance | None,
    context: Context,
) -> Server:
    inputs = {
        "clients": [client.key for client in clients],
        "guidance": guidance.keys if guidance else None,
        "method": plain(cfg.method),
        "model": plain(server_model(cfg)),
    }
    settings = plain(cfg.distill)
    plan = _plan(server_model(cfg), data)
    return distill(
        data,
        test,
        uploads,
        _method(cfg, data.spec, uploads),
        student=partial(plan.initial_model, settings["seed"]),
        inputs=inputs,
        settings=settings,
        context=context,
    )


def _notes(cfg: DictConfig, uploads: Uploads) -> list[str]:
    """What a user should know although it is no mistake."""
    terms = cfg.method.get("objective") or {}
    idle = [name for name, term in terms.items() if term.weight and "statistics" in build(term).needs]
    if idle and not any(map(has_batch_norm, uploads.models)):
        return [f"no client has batch normalisation, so method.objective.{idle[0]} is 0 (model=cnn2, cnn3 have it)"]
    return []


def _ensembles(cfg: DictConfig, uploads: Uploads, server: Server) -> dict[str, Combine]:
    """The ensembles to test: those that evaluation names, as far as they can be built, and the method's own."""
    rows = {
        name: build(node)(uploads)
        for name, node in cfg.evaluate.ensembles.items()
        if uploads.guidance is not None or "guidance" not in _needs(node)
    }
    own = cfg.method.get("ensemble")
    if own is not None and own.name not in rows:
        rows[own.name] = build(own)(uploads)
        rows[own.name].load_state_dict(server.ensemble)
    return rows


def _method(cfg: DictConfig, spec: DataSpec, uploads: Uploads) -> Method:
    loop = None if cfg.method.source is None else build_loop(cfg, spec, uploads)
    return Method(build(cfg.method.init), loop)


def build_loop(cfg: DictConfig, spec: DataSpec, uploads: Uploads) -> Loop:
    """The slots of `cfg.method` as parts."""
    slots = cfg.method
    own = ("generator", "optimizer")
    source = build({key: value for key, value in slots.source.items() if key not in own})
    return Loop(
        ensemble=build(slots.ensemble)(uploads),
        source=source(build(slots.source.generator, spec=spec), classes=spec.classes),
        objective=Objective(build(slots.objective)),
        pool=build(slots.pool),
        student=Objective(build(slots.student)),
        optimizers={"source": build(slots.source.optimizer), "student": build(cfg.distill.student_optimizer)},
        perturb=build(slots.perturb)(spec) if slots.get("perturb") else None,
    )
