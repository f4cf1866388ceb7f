"""One client of a federation on its own machine: trained as in a run, on a folder of images, and packed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from oneshot_fl.aggregation.found import check_name
from oneshot_fl.config import from_overrides
from oneshot_fl.config.needs import OF_DECODERS
from oneshot_fl.config.unread_words import unread_words
from oneshot_fl.config.words import group_of, key_of
from oneshot_fl.data.class_names import class_name
from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.data.decode import Decoding, Origin, Tones
from oneshot_fl.data.images import Tree, check_layout, labelled, read_images, tree_by_class, unread
from oneshot_fl.errors import OneshotError
from oneshot_fl.experiment import Experiment
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import write_model
from oneshot_fl.models.trial import check_models
from oneshot_fl.parts.uploads import DecoderUpload
from oneshot_fl.phases.clients.train import ClientPlan, TrainedClient, train_clients
from oneshot_fl.phases.trainer import device_of
from oneshot_fl.recipe import described
from oneshot_fl.reporting.versions import versions
from oneshot_fl.session import unlogged


def train_client(
    folder: Path,
    overrides: Sequence[str],
    *,
    out: Path,
    number: int,
    class_names: Sequence[str],
    counts: bool,
) -> str:
    """Train client `number` on `folder/<class>/*` and write its upload; returns the SHA-256.

    Args:
        folder: the client's images; a class without any needs no folder.
        overrides: of the configuration, as those of a run; the clients' half is used.
        out: the upload.
        number: the client's place in the federation: its seeds, and where clients differ its model, follow from it.
        class_names: of the federation, in the order of the logits; empty: those that there are images of.
        counts: whether it tells its label counts; a decoder always does.

    Raises:
        OneshotError: `out` has another ending than uploads, an override is wrong, the images cannot be read, or
            training diverged.
    """
    check_name(out)
    if isinstance(class_names, str):
        raise OneshotError(f"classes={class_names!r}: must be a list of names: {class_names.split(',')}")
    experiment = _experiment(overrides)
    if not 0 <= number < len(experiment.clients):
        raise OneshotError(
            f"number={number}: the federation has {len(experiment.clients)} clients, counted from 0; set "
            "partition.clients to how many there are"
        )
    plan = _kept_secret(experiment.clients[number])
    data = _own_images(folder, experiment, class_names)
    check_models([plan.architecture], data.spec)
    notes = (*unread_words(experiment.config, overrides), *data.notes, *_uncovered(plan, counts=counts))
    with unlogged(experiment, notes) as context:
        everything = [torch.arange(len(data.train_labels))]
        (client,) = train_clients(data, everything, [plan], context=context, label_counts=counts, first=number)
    return write_model(out, client.upload.model.state_dict(), description_of(client, plan, data, number))


OF_THE_SERVER = ("gate", "hearing", "stratify", "recite", "distill", "generator", "evaluate", "server_model")
OF_RUNS = (
    *("attack", "proxy", "communication_rounds", "development", "data_root"),
    *("experiment", "study", "logger", "plots", "hydra"),
)
"""Groups and keys of whole runs."""
ITS_OWN_IMAGES = "a client's data are the images in its own folder"
NOT_HERE = {
    **dict.fromkeys(OF_THE_SERVER, "that is the server's, and a client only trains and uploads"),
    **dict.fromkeys(OF_RUNS, "only whole runs have it, and this is one client"),
    "method": "that is the server's, and a client only trains and uploads (method=NAME alone may say what for)",
    "partition": f"{ITS_OWN_IMAGES}; only partition.clients says something of them all",
    "data": ITS_OWN_IMAGES,
    "clients.randomness": "the noise of an upload that leaves is always the system's",
}
"""Why overrides of a group or key have no place in the training of one client."""
STILL_HERE = ("method", "partition.clients")


def _check_override(override: str) -> None:
    group, key = group_of(override), key_of(override)
    why = NOT_HERE.get(key) or NOT_HERE.get(group)
    if why is None or key in STILL_HERE or (group == "data" and key not in ("data", "data.root")):
        return
    raise OneshotError(f"{override}: has no place here: {why}")


def _experiment(overrides: Sequence[str]) -> Experiment:
    for override in overrides:
        _check_override(override)
    bind, _, settings = from_overrides("data=image_folder", "data.root=.", *overrides)
    if settings and not any(key_of(override) == "method" for override in overrides):
        _check_default_method(settings)
    return bind()


def _check_default_method(settings: Mapping[str, Any]) -> None:
    """A client need choose no method, but the one that is there otherwise works on classifiers."""
    if settings["clients"]["kinds"] in (["cvae"], {"cvae": 1}):
        raise OneshotError(
            f"clients.kinds=[cvae]: clients upload decoders alone, and method={settings['method']['name']}, which "
            f"nobody chose, works on classifiers; add {OF_DECODERS}"
        )


def _kept_secret(plan: ClientPlan) -> ClientPlan:
    """Whoever can draw the noise again can take it off, and there would be no guarantee."""
    if plan.training.epsilon is None:
        return plan
    return replace(plan, training=replace(plan.training, randomness="system"))


def _uncovered(plan: ClientPlan, *, counts: bool) -> list[str]:
    """What is told beside a private model; with Flower the server's settings ask for it."""
    told = "counts=true: the upload also tells how many samples each class has, which clients.epsilon does not cover"
    return [told] if counts and plan.training.epsilon is not None else []


def _own_images(folder: Path, experiment: Experiment, class_names: Sequence[str]) -> Dataset:
    """The client's images by class and file name, on the device that it trains on; there is no test set."""
    how, origin = experiment.data.load.settings, Origin(f"folder={folder}", None)
    found = tree_by_class(folder, origin)
    check_layout(folder, found, origin)
    names = list(map(class_name, class_names)) or [name for name, paths in found.items() if paths]
    if unknown := sorted(name for name, paths in found.items() if paths and name not in names):
        raise OneshotError(
            f"{origin.setting}: holds images of {unknown[0]}, which is none of the classes {', '.join(names)}"
        )
    decoding = Decoding(how["size"], how["channels"], Tones.of(how))
    files = {"train": labelled(folder, found, names, complete=False, origin=origin)}
    images, labels = read_images(files, cache=str(experiment.store), how=decoding, origin=origin)["train"]
    data = make_dataset(
        name=folder.name,
        train=(images, labels),
        test=(images[:0], labels[:0]),
        class_names=tuple(names),
        mean=how["mean"],
        std=how["std"],
        tones=decoding.tones,
        notes=(*(() if class_names else _left_out(found, origin)), *unread([folder], files, origin)),
    )
    return data.to(device_of(experiment.trainer))


def _left_out(found: Tree, origin: Origin) -> tuple[str, ...]:
    """A line on the folders without images, where the others are the classes; none where there is no such folder."""
    empty = [name for name, paths in found.items() if not paths]
    if not empty:
        return ()
    told = f"{origin.setting}: no images are in the folders of {', '.join(empty)}, which are no classes of the upload; "
    return (f"{told}if the federation has them, remove these folders and set classes to all that it has",)


def description_of(client: TrainedClient, plan: ClientPlan, data: Dataset, number: int) -> ModelDescription:
    """What an upload says of itself."""
    told = client.upload.label_counts
    return ModelDescription(
        kind="decoder" if isinstance(client.upload, DecoderUpload) else "classifier",
        architectures=(described(plan.architecture.recipe),),
        spec=data.spec,
        class_names=data.class_names,
        number=number,
        samples=client.samples,
        label_counts=None if told is None else tuple(told.tolist()),
        versions=versions(),
        tones=data.tones,
    )
