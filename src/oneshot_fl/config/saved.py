"""A model from the folder of a run whose file does not describe itself, as those of earlier versions.

Its configuration says what to build, and is trusted no more than a file that describes itself: only our own builders
run, and others that the owner of this machine has allowed by name.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from oneshot_fl.artifacts import load_model
from oneshot_fl.config.clients import server_models
from oneshot_fl.config.compose import plain
from oneshot_fl.config.described import build
from oneshot_fl.config.record import SUMMARY
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.described import ModelDescription


def saved_model(folder: Path, *, allowed: Collection[str] = ()) -> tuple[nn.Module, ModelDescription]:
    """The global model of a run, in evaluation mode, and what a file would say of it.

    Args:
        allowed: names of functions or classes, not ours, that may be imported to build the model.

    Raises:
        OneshotError: the folder holds no finished run, its files do not fit each other, or its architecture is not
            allowed.
    """
    try:
        summary = json.loads((folder / SUMMARY).read_text())
        cfg: Any = OmegaConf.load(folder / "config.yaml")
        tensors = load_file(folder / "server.safetensors")
        spec, names = _spec(summary["data_spec"]), tuple(summary["data_spec"]["class_names"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise OneshotError(
            f"{folder}: holds no finished run ({' '.join(str(error).split())}); give the folder with its summary.json, "
            "config.yaml and server.safetensors"
        ) from error
    nodes = tuple(plain(node) for node in server_models(cfg))
    source, layout = (
        str(folder / "server.safetensors"),
        {name: (each.dtype, tuple(each.shape)) for name, each in tensors.items()},
    )
    told = ModelDescription("classifier", nodes, spec, names)
    model = build(told, allowed=allowed, source=source, layout=layout)
    return load_model(model, tensors, source).eval(), told


def _spec(told: dict[str, Any]) -> DataSpec:
    sizes = {key: told[key] for key in ("channels", "size", "classes")}
    return DataSpec(**sizes, mean=tuple(told["mean"]), std=tuple(told["std"]))
