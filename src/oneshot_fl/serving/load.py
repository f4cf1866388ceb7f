"""A global model from its file, or from the folder that a run left."""

from collections.abc import Collection, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from oneshot_fl.config.described import architectures
from oneshot_fl.config.described import load as built
from oneshot_fl.config.record import CONFIG, MODEL, SUMMARY, TRACE
from oneshot_fl.config.saved import saved_model
from oneshot_fl.config.tried import require_memory, require_runs, require_whole
from oneshot_fl.disk import require_regular, sha256_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.described import KEY, ModelDescription
from oneshot_fl.models.model_file import read_model
from oneshot_fl.process import say
from oneshot_fl.serving.model import ServedModel, Source
from oneshot_fl.sweeps.state import read_trace

LATER = {"failed": "failed", "interrupted": "was interrupted", "running": "is under way"}
"""How a run stands, by the word of its trace."""


def load(place: Path, *, allow: Collection[str] = ()) -> ServedModel:
    """The model of a file, or of `server.safetensors` in a folder, in evaluation mode.

    What the file says of itself is enough; the folder of a run by an earlier version, whose file says nothing, is
    loaded by its `config.yaml` and `summary.json`.

    Args:
        allow: names of functions or classes, not ours, that may be imported to build the model.

    Raises:
        OneshotError: there is no such model, its file is damaged, it is no classifier, it does not answer as its file
            says, or its architecture is not allowed.
    """
    is_folder = place.is_dir()
    path = place / MODEL if is_folder else place
    for name in (TRACE, SUMMARY, CONFIG, MODEL) if is_folder else ():
        require_regular(place / name)
    _tell_of_a_later_run(place)
    if is_folder and not _describes_itself(path):
        return _served(*saved_model(place, allow=allow), path, sha256_of(path))
    file = read_model(path, follow_links=True)
    told = file.description
    if told.kind != "classifier":
        raise OneshotError(f"{path}: holds a {told.kind}, and only a classifier can be asked about images")
    known = architectures(told, allow=allow, source=str(path))
    return _served(built(file, allow=allow), told, path, file.sha256, known)


def _tell_of_a_later_run(folder: Path) -> None:
    """Say where a run that came to no model left that of an earlier one."""
    status = read_trace(folder).get("status", "done")
    if status != "done" and (folder / MODEL).exists():
        say(f"{folder}: the last run there {LATER.get(status, status)}; this is the model of an earlier one")


def _served(
    model: nn.Module, told: ModelDescription, path: Path, sha256: str, known: Sequence[Architecture] = ()
) -> ServedModel:
    """Once it is known to take the images, and to have the classes, that its file says; `known` are those it names."""
    require_memory(model, told, known, str(path), gradients=False)
    require_runs(model, told, known, str(path))
    require_whole(model, told, known, str(path))
    temperature, source = told.temperature or 1.0, Source(path.name, sha256)
    return ServedModel(model, told.spec, told.class_names, temperature=temperature, tones=told.tones, source=source)


def _describes_itself(path: Path) -> bool:
    try:
        with safe_open(path, "pt") as file:
            return KEY in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False
