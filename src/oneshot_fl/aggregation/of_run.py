"""What the clients of a run upload, as files: for `aggregate`, or for a server of one's own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oneshot_fl.aggregation.client import description_of
from oneshot_fl.config import from_overrides
from oneshot_fl.config.unread_words import unread_words
from oneshot_fl.disk import make_folder
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.model_file import write_model
from oneshot_fl.pipeline import ready, uploaded
from oneshot_fl.session import unlogged


@dataclass(frozen=True)
class ClientUpload:
    """What one client of a run uploads."""

    file: Path
    """Absolute; it describes itself, as an upload from elsewhere does."""
    indices: NDArray[np.int64]
    """Which of the data set's training images (without those that a proxy took) the client has."""


def uploads_of_run(overrides: Sequence[str], folder: Path) -> list[ClientUpload]:
    """Train the clients of a run, or take them from its store, and write a file for each.

    As a run's server receives them in its first exchange: after an attack, with label counts where the method asks for
    them.

    Raises:
        OneshotError: an override is wrong, the data cannot be read, training diverged, or `folder` holds something.
    """
    _check_empty(folder)
    experiment = from_overrides(*overrides)[0]()
    given = ready(experiment)
    notes = (*unread_words(experiment.config, overrides), *given.data.notes)
    with unlogged(experiment, notes, workers=experiment.workers) as context:
        clients, uploads = uploaded(experiment, given, None, context)
    received, written = uploads.named(), []
    for k, (client, plan, own) in enumerate(zip(clients, experiment.clients, given.indices, strict=True)):
        upload = received[f"client {k}"]
        file = folder.absolute() / f"client-{k:0{len(str(len(clients) - 1))}d}.safetensors"
        told = description_of(replace(client, upload=upload), plan, given.data, k)
        write_model(file, upload.model.state_dict(), told)
        written.append(ClientUpload(file, own.numpy()))
    return written


def _check_empty(folder: Path) -> None:
    """Uploads of another run beside these would be aggregated with them."""
    make_folder(folder)
    if found := sorted(path.name for path in folder.iterdir()):
        raise OneshotError(f"folder={folder}: holds {found[0]}; choose a new or an empty folder")
