"""The data flow.

partition -> training -> uploads -> [attack] -> [gate] -> [recite] -> [hearing] -> [stratify] -> distill -> evaluate
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oneshot_fl.config.record import MODEL, SUMMARY
from oneshot_fl.config.unread_words import unread_words
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.errors import OneshotError, first_of
from oneshot_fl.experiment import Experiment, Serving
from oneshot_fl.ledger import Meter, total
from oneshot_fl.models.architecture import InitialModel
from oneshot_fl.models.bank import has_batch_norm
from oneshot_fl.models.soundness import TURNED_AWAY, first_not_finite
from oneshot_fl.models.trial import check_models
from oneshot_fl.panels import check_panels, panels, test_set
from oneshot_fl.parts.slots import UploadStep, step_for
from oneshot_fl.parts.uploads import ClassifierUpload, DecoderUpload, Recital, Server, Uploads, known_classes
from oneshot_fl.phases.calibrate import calibrate
from oneshot_fl.phases.clients.train import TrainedClient, train_clients
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.evaluate import Evaluated, evaluate, tested_ensembles
from oneshot_fl.phases.global_model import Distilled, distill
from oneshot_fl.phases.prepare import RunData, prepare
from oneshot_fl.phases.recite import Recitals, recite
from oneshot_fl.phases.stratify import Guidance, stratify
from oneshot_fl.phases.trainer import device_of
from oneshot_fl.recipe import Recipe, described
from oneshot_fl.reporting.about import outcome
from oneshot_fl.reporting.cost import ledger_of_run
from oneshot_fl.reporting.plots import draw_all
from oneshot_fl.reporting.run_result import RunResult, Served
from oneshot_fl.reporting.summary import (
    class_counts,
    description_of_run,
    final_metrics,
    summarise,
    write_results,
)
from oneshot_fl.session import session
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress, terminal


def run(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """One run: everything from the data set to `summary.json` in `folder`; returns the summary."""
    running = Meter()
    folder.mkdir(parents=True, exist_ok=True)
    with session(experiment, folder, terminal()) as context:
        preparing = Meter()
        given = ready(experiment)
        for note in (*unread_words(experiment.config, experiment.record["overrides"]), *given.data.notes):
            context.progress.note(note)
        prepared = preparing.spent()
        results = communicate(experiment, given, context)
        last = results[-1]
        measuring = Meter()
        measured = panels(experiment, given, results, context)
        tested = total([*(each.testing for each in results), measuring.spent()])
        ledger = ledger_of_run(results, prepare=prepared, evaluate=tested)
        summary = summarise(experiment, results, data=given, **measured, ledger=ledger, run=running.spent())
        write_results(folder, experiment, summary, last)
        also = experiment.plots.format
        figures = draw(folder, last, context.progress, also=also) if also != "none" else {}
        _log(context.log, summary, last, figures, folder)
    return summary


def ready(experiment: Experiment) -> RunData:
    """What a run has before anything is trained.

    Raises:
        OneshotError: the data cannot be read or dealt, a model does not fit them, or something else that could only be
            known with the data at hand.
    """
    given = prepare(experiment.data, experiment.partition, experiment.proxy, device=device_of(experiment.trainer))
    description_of_run(experiment, given.data)  # a model that nothing can read is not worth making
    check_models(experiment.architectures, given.data.spec)
    check_panels(experiment, given)
    return given


def _log(log: RunLog, summary: dict[str, Any], last: RunResult, figures: dict[str, Path], folder: Path) -> None:
    """What loggers are told at the end."""
    log.log(final_metrics(summary), len(summary["rounds"]))
    log.figures(figures)
    log.outcome(outcome(summary, last, [folder / MODEL, folder / SUMMARY]))


def draw(folder: Path, result: RunResult, progress: Progress, *, also: str) -> dict[str, Path]:
    """The figures of a run as PNG, and beside them in the format `also`."""
    data, server = result.data, result.server
    return draw_all(
        folder,
        counts=class_counts(result),
        class_names=data.class_names,
        guidance=result.guidance.U if result.guidance else None,
        history=server.history,
        ensembles=result.evaluated.accuracies.ensembles,
        confusion=np.array(result.evaluated.server.confusion),
        synthetic=None if server.images is None or server.labels is None else (server.images, server.labels),
        real=(data.train_images.cpu(), data.train_labels.cpu()),
        recitals=result.given.recitals or (),
        used=[upload.name for upload in result.given.uploads.classifiers],
        also=also,
        note=progress.note,
    )


def communicate(experiment: Experiment, given: RunData, context: Context) -> list[RunResult]:
    """The communication rounds: one unless asked for more, and then each begins at the last one's server."""
    results: list[RunResult] = []
    start = None
    for number in range(experiment.communication_rounds):
        several = experiment.communication_rounds > 1
        log = context.log.within(f"communication_{number + 1}/") if several else context.log
        results.append(exchange(experiment.of_exchange(number), given, start, replace(context, log=log)))
        server = results[-1].server
        start = InitialModel(server.model, server.key, number + 1)
    return results


def exchange(experiment: Experiment, given: RunData, start: InitialModel | None, context: Context) -> RunResult:
    """One exchange: local training, one upload, and what the server makes of it."""
    clients, uploads = uploaded(experiment, given, start, context)
    test = test_set(experiment, given.data)
    served = serve(
        experiment,
        uploads,
        given.data.spec,
        test=test,
        data_key=given.data.fingerprint,
        proxy=given.proxy,
        start=start,
        context=context,
    )
    testing = Meter()
    evaluated = assess(experiment, served, test, context)
    return RunResult(
        **vars(served),
        data=given.data,
        partition=given.partition,
        clients=clients,
        received=uploads,
        evaluated=evaluated,
        testing=testing.spent(),
    )


def uploaded(
    experiment: Experiment, given: RunData, start: InitialModel | None, context: Context
) -> tuple[list[TrainedClient], Uploads]:
    """The clients once they have trained, and what the server receives of them: after an attack, before the gate."""
    asked = "label_counts" in experiment.needs
    clients = train_clients(
        given.data, given.indices, experiment.clients, context=context, start=start, label_counts=asked
    )
    return clients, _through(experiment.attack_on_uploads, received(clients), given.data.spec, "attack")


def serve(
    plan: Serving,
    uploads: Uploads,
    spec: DataSpec,
    *,
    test: ImageBatches | None,
    data_key: str,
    proxy: Proxy | None = None,
    start: InitialModel | None = None,
    context: Context,
) -> Served:
    """The server's half: gate, what the method's parts ask for, distillation. Whoever made the uploads is the same.

    Args:
        plan: what the server does.
        uploads: as they arrived.
        spec: of the images that all models take.
        test: the test set, where there is one.
        data_key: fingerprint of the data set that the test set belongs to.
        proxy: the server's own images, where it has some.
        start: where the clients began, if that was at the server's last model.
        context: see there.

    Raises:
        NothingLeftError: every upload was turned away, or every one of a kind that the method needs.
        OneshotError: the student diverged.
    """
    recitals, uploads, recited = admit(plan, uploads, spec, context)
    with _broken_uploads_told(uploads):
        guidance = _guidance(plan, spec, uploads, context)
        server = Server(spec, uploads, guidance.U if guidance else None, proxy, recited, start=start)
        _note_idle_terms(plan, uploads, context)
        distilled = distill(
            test,
            server,
            plan.method,
            data_key=data_key,
            student=plan.student,
            settings=plan.distillation,
            rate_keys=plan.rate_keys,
            context=context,
        )
    _note_none_held_out(plan, distilled, context)
    size = plan.evaluation.batch_size
    made = (distilled.images, distilled.labels, distilled.trust)
    calibration = calibrate(distilled.model, *made, spec=spec, batch_size=size) if plan.calibrates else None
    return Served(server, guidance, recitals, distilled, calibration)


@contextmanager
def _broken_uploads_told(uploads: Uploads) -> Iterator[None]:
    """Where uploads are not finite, nor is what is made of them: errors blame the server's model and its rates."""
    try:
        yield
    except OneshotError as error:
        broken = [name for name, upload in uploads.named().items() if first_not_finite(upload.model)]
        if not broken or TURNED_AWAY in str(error):
            raise
        told = f"{error}; what {first_of(broken)} uploaded is not finite, and {TURNED_AWAY}"
        raise type(error)(told) from error


def admit(
    plan: Serving, uploads: Uploads, spec: DataSpec, context: Context
) -> tuple[Recitals | None, Uploads, tuple[Recital, ...] | None]:
    """Gate and hearing: all recitals that were made, the uploads that are used, and the recitals of those.

    Raises:
        NothingLeftError: every upload was turned away, or every one of a kind that the method needs.
    """
    uploads = _through(plan.gate, uploads, spec, "gate")
    _tell(uploads, plan, context, since=Uploads(()))
    recitals = _recitals(plan, spec, uploads, context)
    return recitals, *_heard(plan, uploads, recitals, spec, context)


def assess(plan: Serving, served: Served, test: ImageBatches, context: Context) -> Evaluated:
    """Test accuracy of every client that is used, of the ensembles, and of the server."""
    rows, own, distilled = plan.evaluation.ensembles, plan.method.ensemble, served.server
    ensembles = tested_ensembles(rows, own, replace(served.given, student=distilled.model), distilled.ensemble)
    uploads = served.given.uploads
    return evaluate(
        test,
        uploads.models,
        distilled.model,
        ensembles,
        known=known_classes(uploads.classifiers, test.spec.classes),
        temperature=served.temperature or 1.0,
        context=context,
    )


def received(clients: list[TrainedClient]) -> Uploads:
    """What the server receives of the clients, by kind."""
    sent = {k: replace(client.upload, name=f"client {k}") for k, client in enumerate(clients)}
    return Uploads(
        tuple(replace(upload, draws=k) for k, upload in sent.items() if isinstance(upload, ClassifierUpload)),
        tuple(upload for upload in sent.values() if isinstance(upload, DecoderUpload)),
    )


def _through(step: Recipe[UploadStep] | None, uploads: Uploads, spec: DataSpec, key: str) -> Uploads:
    """The uploads after an attack or a gate, where there is one."""
    if step is None:
        return uploads
    return uploads.through(step_for(step, spec), described(step), who=f"{key}={step.name}")


def _heard(
    plan: Serving, uploads: Uploads, recitals: Recitals | None, spec: DataSpec, context: Context
) -> tuple[Uploads, tuple[Recital, ...] | None]:
    """The uploads that are used once all recitals were heard, and theirs alone."""
    if recitals is None or plan.hearing is None:
        return uploads, recitals.of_clients if recitals else None
    hearing, heard = step_for(plan.hearing, spec), recitals.of_clients
    listened = {"hearing": described(plan.hearing), "recitals": [each.key for each in heard]}
    after = uploads.through(lambda given: hearing(given, heard), listened, who=f"hearing={plan.hearing.name}")
    _tell(after, plan, context, since=uploads)
    left = after.named()
    pairs = zip(uploads.classifiers, heard, strict=True)
    return after, tuple(recital for upload, recital in pairs if upload.name in left)


def _tell(left: Uploads, plan: Serving, context: Context, *, since: Uploads) -> None:
    """Whom gate or hearing turned away, what else they say, and whether the method can do with what is left.

    Args:
        since: what has been told of already.
    """
    turned_away = left.quarantined[len(since.quarantined) :]
    for line in (*(one.told for one in turned_away), *left.notes[len(since.notes) :]):
        context.progress.note(line)
    left.require(plan.needs, plan.method.name)


def _guidance(plan: Serving, spec: DataSpec, uploads: Uploads, context: Context) -> Guidance | None:
    """The guidance matrix, where a part of the method needs it."""
    if "guidance" not in plan.method.needs:
        return None
    return stratify(
        uploads,
        spec=spec,
        generator=plan.generator,
        settings=plan.stratification,
        context=context,
    )


def _recitals(plan: Serving, spec: DataSpec, uploads: Uploads, context: Context) -> Recitals | None:
    """What every client recites, where a part of the method needs it."""
    if "recitals" not in plan.needs:
        return None
    return recite(uploads, spec=spec, settings=plan.recitation, context=context)


def _note_idle_terms(plan: Serving, uploads: Uploads, context: Context) -> None:
    """What a user should know although it is no mistake."""
    terms = {f"method.objective.{name}": term for name, term in plan.method.objective.items()}
    if "recitals" in plan.needs:
        terms |= {f"recite.objective.{name}": term for name, term in plan.recitation.objective.items()}
    idle = [key for key, term in terms.items() if term.settings["weight"] and "statistics" in term.needs]
    if idle and not any(map(has_batch_norm, uploads.models)):
        context.progress.note(f"no client has batch normalisation, so {idle[0]} is 0 (model=cnn2, cnn3 have it)")


def _note_none_held_out(plan: Serving, distilled: Distilled, context: Context) -> None:
    """A share of few images is none; where their number is known before, that is refused (`config.images`)."""
    if plan.distillation.held_out and distilled.images is not None and distilled.held is None:
        context.progress.note(
            f"distill.held_out={plan.distillation.held_out}: that was not even one of the images that a source made at "
            "once, so none was held out, and there is none for evaluate.validation=synthetic; set a larger share"
        )
