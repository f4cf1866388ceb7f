"""A model from the folder of a run whose file does not describe itself, as those of earlier versions.

Its configuration says what to build, its weights are checked.
"""

import json
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from oneshot_fl.artifacts import load_model
from oneshot_fl.config.clients import server_models
from oneshot_fl.config.compose import recipe
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.per_architecture import together


def saved_model(folder: Path) -> tuple[nn.Module, DataSpec, tuple[str, ...]]:
    """The global model of a run, in evaluation mode, what it takes, and the names of its classes.

    Raises:
        OneshotError: the folder holds no finished run, or its files do not fit each other.
    """
    try:
        summary = json.loads((folder / "summary.json").read_text())
        cfg: Any = OmegaConf.load(folder / "config.yaml")
        tensors = load_file(folder / "server.safetensors")
        spec, names = _spec(summary["data_spec"]), tuple(summary["data_spec"]["class_names"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise OneshotError(
            f"{folder}: holds no finished run ({' '.join(str(error).split())}); give the folder with its summary.json, "
            "config.yaml and server.safetensors"
        ) from error
    model = together([Architecture(recipe(node)).build(spec) for node in server_models(cfg)])
    return load_model(model, tensors, str(folder / "server.safetensors")).eval(), spec, names


def _spec(told: dict[str, Any]) -> DataSpec:
    sizes = {key: told[key] for key in ("channels", "size", "classes")}
    return DataSpec(**sizes, mean=tuple(told["mean"]), std=tuple(told["std"]))
