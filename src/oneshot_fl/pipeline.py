"""The data flow: partition -> local training -> [stratify] -> distill -> evaluate -> report."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from torch import nn

from oneshot_fl.config.bind import (
    RunData,
    load_data,
    make_ensembles,
    make_fidelity_reference,
    make_loggers,
    make_method,
    make_optimizer,
    make_plan,
    make_store,
    make_trainings,
    make_uploads,
    needs,
    notes,
    uses_proxy,
)
from oneshot_fl.config.compose import build, client_nodes, kinds, plain, server_models
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset
from oneshot_fl.models.per_architecture import together
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.phases.clients.train import ClientPlan, InitialModel, TrainedClient, train_clients
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.distill import Server, distill
from oneshot_fl.phases.evaluate import evaluate
from oneshot_fl.phases.fidelity import Fidelity, FidelityReference, measure
from oneshot_fl.phases.stratify import Guidance, stratify
from oneshot_fl.reporting.plots import draw_all
from oneshot_fl.reporting.run_result import RunResult
from oneshot_fl.reporting.summary import final_metrics, print_summary, summarise, write_results
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress


def run(cfg: DictConfig, folder: Path) -> dict[str, Any]:
    """One run: everything from the data set to `summary.json` in `folder`; returns the summary."""
    begun = time.perf_counter()
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    store = make_store(cfg)
    given = load_data(cfg)
    fidelity_reference = make_fidelity_reference(cfg, given.data)
    with RunLog(make_loggers(cfg, folder)) as log, Progress(console) as progress:
        context = Context(store, plain(cfg.trainer), progress, log)
        results = _communicate(cfg, given, context)
        summary = summarise(
            cfg,
            results,
            data=given.fingerprint,
            proxy=_proxy_facts(cfg, given),
            fidelity=_fidelity(cfg, given, fidelity_reference, results[-1].server, context),
            seconds=time.perf_counter() - begun,
        )
        write_results(folder, cfg, summary, results[-1].server.model)
        figures = _draw(folder, results[-1])
        log.log(final_metrics(summary), len(summary["rounds"]))
        log.figures(figures)
    print_summary(console, summary, [folder / "summary.json", *figures.values()])
    return summary


def _draw(folder: Path, result: RunResult) -> dict[str, Path]:
    data, server = result.data, result.server
    return draw_all(
        folder,
        counts=result.partition.class_counts(data.train_labels.cpu().numpy(), data.spec.classes),
        class_names=data.class_names,
        guidance=result.guidance.U if result.guidance else None,
        history=server.history,
        ensembles=result.accuracies.ensembles,
        synthetic=None if server.images is None or server.labels is None else (server.images, server.labels),
    )


def _proxy_facts(cfg: DictConfig, given: RunData) -> dict[str, Any] | None:
    """What the server's own images were, where the method used them."""
    if not uses_proxy(cfg):
        return None
    return {"name": cfg.proxy.name, "samples": len(given.proxy.images), "sha256": given.proxy.sha256}


def _fidelity(
    cfg: DictConfig, given: RunData, fidelity_reference: FidelityReference | None, server: Server, context: Context
) -> Fidelity | None:
    """How like the training images the synthetic ones are, where that was asked for and there are some."""
    if fidelity_reference is None or server.images is None or server.labels is None:
        return None
    test = _test_set(cfg, given.data)
    return measure(fidelity_reference, server.images, server.labels, data=given.data, test=test, context=context)


def _test_set(cfg: DictConfig, data: Dataset) -> ImageBatches:
    return ImageBatches(data.test_images, data.test_labels, spec=data.spec, batch_size=cfg.evaluate.batch_size)


def _communicate(cfg: DictConfig, given: RunData, context: Context) -> list[RunResult]:
    """The communication rounds: one unless asked for more, and then each begins at the last one's server."""
    results: list[RunResult] = []
    start = None
    for number in range(cfg.communication_rounds):
        several = cfg.communication_rounds > 1
        log = context.log.within(f"communication_{number + 1}/") if several else context.log
        results.append(exchange(cfg, given, start, replace(context, log=log)))
        server = results[-1].server
        start = InitialModel(server.model, server.key, number + 1)
    return results


def exchange(cfg: DictConfig, given: RunData, start: InitialModel | None, context: Context) -> RunResult:
    """One exchange: local training, one upload, and what the server makes of it."""
    data, partition = given.data, given.partition
    plans = [make_plan(node, data.spec, kind) for node, kind in zip(client_nodes(cfg), kinds(cfg), strict=True)]
    clients = train_clients(data, partition, plans, trainings=make_trainings(cfg), context=context, start=start)
    guidance = _stratify(cfg, data, [client for client in clients if client.kind == "classifier"], context)
    uploads = make_uploads(clients, plans, guidance.U if guidance else None)
    for note in notes(cfg, uploads):
        context.progress.note(note)
    test = _test_set(cfg, data)
    server = _distill(cfg, given, test, clients, uploads, guidance, context)
    ensembles = make_ensembles(cfg, uploads, server.ensemble)
    accuracies = evaluate(test, uploads.models, server.model, ensembles, context=context)
    return RunResult(data, partition, clients, guidance, server, accuracies)


def _stratify(cfg: DictConfig, data: Dataset, clients: list[TrainedClient], context: Context) -> Guidance | None:
    """The guidance matrix, where the method's ensemble needs it."""
    if "guidance" not in needs(cfg.method.get("ensemble")):
        return None
    return stratify(
        clients,
        classes=data.spec.classes,
        build_generator=partial(build, cfg.generator, spec=data.spec),
        generator_settings=plain(cfg.generator),
        settings=plain(cfg.stratify),
        optimizer=make_optimizer(cfg.stratify.optimizer),
        context=context,
    )


def _distill(
    cfg: DictConfig,
    given: RunData,
    test: ImageBatches,
    clients: list[TrainedClient],
    uploads: Uploads,
    guidance: Guidance | None,
    context: Context,
) -> Server:
    plans = [make_plan(node, given.data.spec) for node in server_models(cfg)]
    return distill(
        given.data,
        test,
        uploads,
        make_method(cfg, given.data.spec, uploads, given.proxy),
        student=partial(_student, cfg, plans),
        inputs={
            "clients": [client.key for client in clients],
            "guidance": guidance.keys if guidance else None,
            "method": plain(cfg.method),
            "proxy": given.proxy.sha256 if uses_proxy(cfg) else None,
            "models": [plan.model_settings for plan in plans],
        },
        settings=plain(cfg.distill),
        context=context,
    )


def _student(cfg: DictConfig, plans: list[ClientPlan]) -> nn.Module:
    """What the method's init begins with: weights of the server's own, or those that the clients began at."""
    if "clients_start" in build(cfg.method.init).needs:
        return together([plan.initial_model(cfg.clients.seed) for plan in plans])
    return together([plan.student(cfg.distill.seed) for plan in plans])
