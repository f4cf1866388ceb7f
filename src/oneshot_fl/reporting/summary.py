"""`summary.json`, the contract that tables are built from, and its figure on the terminal."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from oneshot_fl.config.record import CONFIG, SUMMARY
from oneshot_fl.data.dataset import Dataset
from oneshot_fl.disk import write_atomically
from oneshot_fl.experiment import Experiment
from oneshot_fl.ledger import Cost
from oneshot_fl.models.classifiers import upload_bytes
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.parts.uploads import ClassifierUpload, DecoderUpload
from oneshot_fl.phases.calibrate import Calibration
from oneshot_fl.phases.class_figures import ClassFigures
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.phases.evaluate import Evaluated
from oneshot_fl.phases.fidelity import Fidelity
from oneshot_fl.phases.prepare import RunData
from oneshot_fl.phases.privacy import Privacy
from oneshot_fl.phases.validate import Validation
from oneshot_fl.recipe import described
from oneshot_fl.reporting.earlier import remove_figures, tell_of_export
from oneshot_fl.reporting.run_result import RunResult
from oneshot_fl.reporting.server_file import server_description, write_server
from oneshot_fl.reporting.versions import versions


def summarise(
    experiment: Experiment,
    results: list[RunResult],
    *,
    data: RunData,
    validation: Validation | None,
    fidelity: Fidelity | None,
    privacy: Privacy | None,
    backdoor: float | None,
    ledger: Mapping[str, Mapping[str, Any]],
    run: Cost,
) -> dict[str, Any]:
    """The summary as built-in types; accuracies are fractions.

    `results` has one entry per communication round; all but `communication`, `seconds` and `cost` tells of the last
    one. `ledger` has an entry for every phase (`reporting.cost`), `run` is what this process spent.
    `validation` tells of the student beside its ensemble on images that it was not trained on (None: not asked for),
    `fidelity` tells of the synthetic images (None: not asked for, or there are none), `privacy` of what attacks find,
    `backdoor` of how often the server falls for a trigger (None: there is none).
    """
    result = results[-1]
    evaluated, history = result.evaluated, result.server.history
    own = experiment.method.ensemble
    used = own.name if own else "uniform"
    return {
        **experiment.record,
        "partition": {
            "name": result.partition.name,
            "settings": _without_label(experiment.record["settings"]["partition"]),
            "sha256": result.partition.sha256,
            "sizes": result.partition.sizes,
            "class_counts": class_counts(result).tolist(),
            "disjoint": result.partition.disjoint,
        },
        "data_sha256": data.fingerprint,
        "data_spec": {**described(data.data.spec), "class_names": list(data.data.class_names)},
        "proxy": _proxy(experiment, data),
        "uploads": {"label_counts": "label_counts" in experiment.needs},
        "attack": _attack(experiment, backdoor),
        "clients": _clients(experiment, result),
        "guidance": _rounded(result.guidance.U) if result.guidance else None,
        "ensemble": {
            "name": used,
            "accuracy": evaluated.accuracies.ensembles.get(used),
            "rows": evaluated.accuracies.ensembles,
            "balanced": evaluated.balanced.ensembles,
        },
        "server": {
            **_server_accuracies(result),
            **by_class(evaluated.server, data.data.class_names),
            **sureness(result.calibration, result.evaluated),
            "model": experiment.student.name,
            "pool_bytes": result.server.pool_bytes,
        },
        "validation": described(validation),
        "synthetic": _synthetic(fidelity) if fidelity else None,
        "privacy": described(privacy),
        "communication": [_exchange(each) for each in results],
        "rounds": history,
        "seconds": _seconds(results, ledger, run),
        "cost": ledger,
        "peak_memory_bytes": run.peak_device_bytes or run.peak_host_bytes,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def class_counts(result: RunResult) -> NDArray[np.int64]:
    """Training samples of every class at every client, `[m, c]`."""
    data = result.data
    return result.partition.class_counts(data.train_labels.cpu().numpy(), data.spec.classes)


def _rounded(values: Tensor) -> list[list[float]]:
    """A matrix to six significant digits."""
    return [[float(f"{value:.6g}") for value in row] for row in values.tolist()]


def _without_label(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A choice's own settings; its name stands beside them."""
    return {key: value for key, value in settings.items() if key not in ("name", "_target_")}


def _proxy(experiment: Experiment, data: RunData) -> dict[str, Any] | None:
    """What the server's own images were, where the method used them."""
    if "proxy" not in experiment.method.needs:
        return None
    return {"name": experiment.proxy.name, "samples": len(data.proxy.images), "sha256": data.proxy.sha256}


def _attack(experiment: Experiment, backdoor: float | None) -> dict[str, Any] | None:
    """What hostile clients did, and how many they were."""
    if experiment.attack is None:
        return None
    settings = experiment.attack.settings
    return {"name": experiment.attack.name, "clients": settings.get("clients"), "backdoor_success": backdoor}


def _clients(experiment: Experiment, result: RunResult) -> list[dict[str, Any]]:
    """One entry per client, with the seconds of its training; without accuracy where it uploads a decoder.

    Nor has one that was turned away; `quarantined` says why.
    """
    plans, sent = experiment.clients, result.received.named()
    uploads = result.given.uploads
    used, evaluated = _used(result), result.evaluated
    accuracies = dict(zip(used, evaluated.accuracies.clients, strict=True))
    balanced = dict(zip(used, evaluated.balanced.clients, strict=True))
    reasons = {one.name: one.reason for one in uploads.quarantined}
    return [
        {
            "kind": client.kind,
            "accuracy": accuracies.get(f"client {k}"),
            "balanced_accuracy": balanced.get(f"client {k}"),
            "quarantined": reasons.get(f"client {k}"),
            "model": client.name,
            "samples": client.samples,
            "epsilon": client.epsilon,
            "delta": None if client.epsilon is None else plans[k].training.delta,
            "hostile": plans[k].poison is not None or not _as_trained(client, sent.get(f"client {k}")),
            "upload_bytes": upload_bytes(client.upload.model),
            "macs": client.macs,
            "seconds": client.cost.seconds,
        }
        for k, client in enumerate(result.clients)
    ]


def _as_trained(client: TrainedClient, sent: ClassifierUpload | DecoderUpload | None) -> bool:
    """Whether what arrived of a client is what it trained: an attack that changes it changes its key."""
    return sent is not None and sent.key == client.upload.key


def _exchange(result: RunResult) -> dict[str, Any]:
    """One communication round; the gate and the hearing may turn other clients away than in the next one."""
    accuracies = result.evaluated.accuracies
    return {
        "clients": accuracies.clients,
        "used": _used(result),
        "ensembles": accuracies.ensembles,
        **_server_accuracies(result),
    }


def _used(result: RunResult) -> list[str]:
    """The names of the clients whose classifiers the server used, in the order in which they are evaluated."""
    return [upload.name for upload in result.given.uploads.classifiers]


def by_class(figures: ClassFigures, names: tuple[str, ...]) -> dict[str, Any]:
    """What a server does class by class; null where the test set has no image to tell it by."""
    rows = zip(names, figures.images, figures.recall, figures.auroc, strict=True)
    return {
        "balanced_accuracy": figures.balanced_accuracy,
        "macro_auroc": figures.macro_auroc,
        "ece": figures.ece,
        "by_class": [
            {"class": name, "images": images, "recall": recall, "auroc": auroc} for name, images, recall, auroc in rows
        ],
        "confusion": figures.confusion,
    }


def sureness(fitted: Calibration | None, evaluated: Evaluated) -> dict[str, Any]:
    """How well the server knows when it is right, with the temperature that was fitted if one was."""
    return {
        "calibration": {**vars(fitted), "ece": evaluated.calibrated_ece} if fitted else None,
        "abstention": [vars(row) for row in evaluated.abstention],
    }


def _synthetic(fidelity: Fidelity) -> dict[str, Any]:
    """Distances on the features of `extractor`, which are not Inception's."""
    bounds = {"noise": fidelity.noise, "real": fidelity.real}
    return {
        "fid": fidelity.synthetic.fid,
        "kid": fidelity.synthetic.kid,
        "kid_std": fidelity.synthetic.kid_std,
        "samples": fidelity.samples,
        "extractor": {"model": fidelity.extractor, "epochs": fidelity.epochs, "accuracy": fidelity.accuracy},
        **{name: {"fid": found.fid, "kid": found.kid} for name, found in bounds.items()},
    }


def _seconds(results: list[RunResult], ledger: Mapping[str, Mapping[str, Any]], run: Cost) -> dict[str, float]:
    return {
        **{phase: entry["seconds"] for phase, entry in ledger.items()},
        **{f"client_{k:02d}": seconds for k, seconds in enumerate(_training(results))},
        "run": run.seconds,
    }


def _training(results: list[RunResult]) -> list[float]:
    """Seconds that each client trained, over all exchanges."""
    exchanges = [[client.cost.seconds for client in result.clients] for result in results]
    return [sum(seconds) for seconds in zip(*exchanges, strict=True)]


def _server_accuracies(result: RunResult) -> dict[str, float]:
    last = result.evaluated.accuracies.server
    return {
        "accuracy_last": last,
        "accuracy_best": max([last, *(row["accuracy"] for row in result.server.history)]),
    }


def write_results(folder: Path, experiment: Experiment, summary: Mapping[str, Any], result: RunResult) -> None:
    """`summary.json`, `config.yaml` with every value resolved, and `server.safetensors`, which describes itself.

    Figures that another run left in the folder are removed, and an export of its model is told of.

    Raises:
        OneshotError: something cannot be written.
    """
    remove_figures(folder)
    write_atomically(folder / CONFIG, yaml.safe_dump(dict(experiment.config), sort_keys=False))
    told = description_of_run(experiment, result.data)
    accuracy = result.evaluated.accuracies.server
    write_server(folder, result.server.model, told, accuracy=accuracy, temperature=result.temperature)
    tell_of_export(folder)
    write_atomically(folder / SUMMARY, json.dumps(summary, indent=1))


def description_of_run(experiment: Experiment, data: Dataset) -> ModelDescription:
    """What `server.safetensors` will say of the model of a run.

    Raises:
        OneshotError: nothing could read it again.
    """
    return server_description(
        experiment.student, data.spec, data.class_names, method=experiment.method.name, tones=data.tones
    )


CALIBRATED = {"temperature": "temperature", "ece_calibrated": "ece"}
"""Metrics of the run log, and where a calibration holds them."""


def final_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """The figures at the end of a run, and the distances of its synthetic images, named for the run log.

    What the test set could not give is left out.
    """
    server = summary["server"]
    found = {f"evaluate/client_{k:02d}": client["accuracy"] for k, client in enumerate(summary["clients"])}
    found |= {f"evaluate/ensemble_{name}": value for name, value in summary["ensemble"]["rows"].items()}
    found |= {f"evaluate/server_{which}": server[f"accuracy_{which}"] for which in ("last", "best")}
    found |= {f"evaluate/server_{name}": server[name] for name in ("balanced_accuracy", "macro_auroc", "ece")}
    if server["calibration"]:
        found |= {f"evaluate/server_{name}": server["calibration"][key] for name, key in CALIBRATED.items()}
    found |= {f"evaluate/recall_{j:02d}": row["recall"] for j, row in enumerate(server["by_class"])}
    for who, distances in distances_of(summary).items():
        found |= {f"evaluate/{who}_{name}": distances[name] for name in ("fid", "kid")}
    found |= privacy_metrics(summary["privacy"])
    return {name: value for name, value in found.items() if value is not None}


def privacy_metrics(privacy: Mapping[str, Any] | None) -> dict[str, float]:
    """How well attacks tell members of the server's model and, on average, of the uploads; copies among images."""
    if privacy is None:
        return {}
    attacked = {"server": [privacy["server"]], "clients": [each for each in privacy["clients"] if each]}
    found = {
        f"privacy/{who}_{attack}_{figure}": sum(each[attack][figure] for each in models) / len(models)
        for who, models in attacked.items()
        for attack in ("loss", "lira")
        for figure in ("auc", "tpr")
        if models
    }
    for name, copied in privacy["synthetic"].items():
        found |= {f"privacy/{name}_{figure}": copied[figure] for figure in ("nearer_to_training", "copies")}
    return found


def distances_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """FID and KID of the synthetic images and of their bounds; nothing where they were not measured."""
    synthetic = summary["synthetic"]
    return {"synthetic": synthetic, **{who: synthetic[who] for who in ("noise", "real")}} if synthetic else {}
