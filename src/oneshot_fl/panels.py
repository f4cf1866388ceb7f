"""What a run measures of its result besides accuracy: validation, fidelity, privacy, a backdoor."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset
from oneshot_fl.experiment import Experiment
from oneshot_fl.parts.attacks import Tampering, Trigger, check_trigger, plants_a_trigger
from oneshot_fl.parts.ensembles import LogitAverage
from oneshot_fl.parts.slots import step_for
from oneshot_fl.parts.uploads import ClassifierUpload, DecoderUpload, Uploads
from oneshot_fl.phases.backdoor import backdoor_success
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.evaluate import tested_ensembles
from oneshot_fl.phases.fidelity import Fidelity, measure
from oneshot_fl.phases.global_model import Distilled
from oneshot_fl.phases.poisoned import poisoned
from oneshot_fl.phases.prepare import RunData
from oneshot_fl.phases.privacy import Attacked, Privacy, Synthetic, measure_privacy
from oneshot_fl.phases.trainer import device_of
from oneshot_fl.phases.validate import Validation, validate
from oneshot_fl.reporting.run_result import RunResult


def check_panels(experiment: Experiment, given: RunData) -> None:
    """Whether all that is asked for can be measured on this data, before anything is trained.

    Raises:
        OneshotError: something cannot.
    """
    data = given.data
    for asked in (experiment.evaluation.fidelity, experiment.evaluation.privacy):
        if asked is not None:
            asked.check(data)
    if experiment.evaluation.privacy is not None:
        poisoned(data, given.indices, experiment.clients)
    if trigger := _trigger(experiment, data):
        check_trigger(trigger, data.spec.classes, data.test_labels)
    attack = experiment.attack_on_uploads
    if attack is not None and isinstance(tampering := step_for(attack, data.spec), Tampering):
        tampering.check(data.spec.classes)


def panels(experiment: Experiment, given: RunData, results: Sequence[RunResult], context: Context) -> dict[str, Any]:
    """By name what was asked for, each None where it was not or there is nothing to measure.

    Args:
        results: of all communication rounds; what is measured is of the last one.
    """
    result = results[-1]
    return {
        "validation": _validation(experiment, result, given, context),
        "fidelity": _fidelity(experiment, given.data, result.server, context),
        "privacy": _privacy(experiment, given, results, context),
        "backdoor": _backdoor(experiment, given.data, result.server, context),
    }


def test_set(experiment: Experiment, data: Dataset) -> ImageBatches:
    """The test images, in the batches in which everything is evaluated."""
    size = experiment.evaluation.batch_size
    return ImageBatches(data.test_images, data.test_labels, spec=data.spec, batch_size=size)


def _validation(experiment: Experiment, result: RunResult, given: RunData, context: Context) -> Validation | None:
    """How well the student learned of its ensemble (without one, of the plain average), where that was asked for."""
    of, uploads = experiment.evaluation.validation, result.given.uploads
    images = result.server.held if of == "synthetic" else given.proxy.images if of == "proxy" else None
    if of is None or images is None or not uploads.models:
        return None
    own, server = experiment.method.ensemble, replace(result.given, student=result.server.model)
    return validate(
        images,
        result.server.model,
        uploads.models,
        tested_ensembles({}, own, server, result.server.ensemble)[own.name] if own else LogitAverage(server),
        of=of,
        spec=given.data.spec,
        batch_size=experiment.evaluation.batch_size,
        device=device_of(context.trainer),
    )


def _fidelity(experiment: Experiment, data: Dataset, server: Distilled, context: Context) -> Fidelity | None:
    """How like the training images the synthetic ones are, where that was asked for and there are some."""
    reference = experiment.evaluation.fidelity
    if reference is None:
        return None
    if server.images is None or server.labels is None:
        context.progress.note(f"evaluate.fidelity: measures nothing, method={experiment.method.name} made no images")
        return None
    test = test_set(experiment, data)
    return measure(reference, server.images, server.labels, data=data, test=test, context=context)


def _privacy(experiment: Experiment, given: RunData, results: Sequence[RunResult], context: Context) -> Privacy | None:
    """What the last uploads and the global model give away, where that was asked for."""
    if experiment.evaluation.privacy is None:
        return None
    learned = _positions(_learned_of(experiment, results), given)
    return measure_privacy(
        experiment.evaluation.privacy,
        given.data,
        results[-1].server.model,
        _attacked(experiment, given, results[-1].received),
        learned,
        _synthetic(experiment, given, results, learned),
        changed=poisoned(given.data, given.indices, experiment.clients),
        context=context,
    )


def _attacked(experiment: Experiment, given: RunData, sent: Uploads) -> list[Attacked]:
    """Every classifier as it was uploaded, with its client's samples."""
    own = {f"client {k}": pair for k, pair in enumerate(zip(given.indices, experiment.clients, strict=True))}
    pairs = [(upload.model, *own[upload.name]) for upload in sent.classifiers]
    return [Attacked(model, index, hostile=plan.poison is not None) for model, index, plan in pairs]


def _synthetic(
    experiment: Experiment, given: RunData, results: Sequence[RunResult], learned: Tensor
) -> dict[str, Synthetic]:
    """The server's images, and what was recited, also by those whom the hearing turned away then.

    Args:
        learned: positions of the images that the global model has learned of.
    """
    last, made = results[-1], {}
    if last.server.images is not None:
        made["images"] = Synthetic(last.server.images, learned)
    if last.recitals:
        recited = torch.cat([each.images for each in last.recitals.of_clients])
        reciters = {*last.recitals.clients, *_learned_of(experiment, results[:-1])}
        made["recitals"] = Synthetic(recited, _positions(reciters, given))
    return made


def _learned_of(experiment: Experiment, results: Sequence[RunResult]) -> set[str]:
    """The clients that the global model knows of: in each communication round all begin at the one before."""
    used = [upload for result in results for upload in result.given.uploads.named().items()]
    return {name for name, upload in used if _kind(upload) in experiment.method.uses}


def _positions(clients: set[str], given: RunData) -> Tensor:
    """Of these clients' images in the training set, in the clients' order."""
    return torch.cat([index for k, index in enumerate(given.indices) if f"client {k}" in clients])


def _kind(upload: ClassifierUpload | DecoderUpload) -> str:
    return "classifiers" if isinstance(upload, ClassifierUpload) else "decoders"


def _backdoor(experiment: Experiment, data: Dataset, server: Distilled, context: Context) -> float | None:
    """How often the server falls for the hostile clients' trigger, where they trained one in."""
    trigger, size = _trigger(experiment, data), experiment.evaluation.batch_size
    return backdoor_success(trigger, data, server.model, batch_size=size, context=context) if trigger else None


def _trigger(experiment: Experiment, data: Dataset) -> Trigger | None:
    """The attack, where it is one that plants a trigger."""
    attack = experiment.attack
    return step_for(attack, data.spec) if attack is not None and plants_a_trigger(attack) else None
