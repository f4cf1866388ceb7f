"""A model from the folder of a run whose file does not describe itself, as those of earlier versions.

Its configuration says what to build, and is trusted no more than a file that describes itself: only our own builders
run, and others that the owner of this machine has allowed by name.
"""

import json
from collections.abc import Collection
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from oneshot_fl.artifacts import load_model
from oneshot_fl.config.clients import server_models
from oneshot_fl.config.compose import plain
from oneshot_fl.config.described import build
from oneshot_fl.config.record import CONFIG, MODEL, SUMMARY
from oneshot_fl.config.rules import check_table
from oneshot_fl.data.class_names import ClassNames
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError, named_line
from oneshot_fl.fits import shown
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.values import Channels, Clients, Count, Deviations, Means, Side

IMAGES: dict[str, Any] = {
    "channels": Channels,
    "size": Side,
    "classes": Count,
    "mean": Means,
    "std": Deviations,
    "class_names": ClassNames,
}
"""What the summary has to say of the images."""
LARGEST = 50_000
"""Bytes of a configuration that is read; those of runs have about 5,000."""


def saved_model(folder: Path, *, allow: Collection[str] = ()) -> tuple[nn.Module, ModelDescription]:
    """The global model of a run, in evaluation mode, and what a file would say of it.

    Args:
        allow: names of functions or classes, not ours, that may be imported to build the model.

    Raises:
        OneshotError: the folder holds no finished run, its files do not fit each other, or its architecture is not
            allowed.
    """
    source = folder / MODEL
    try:
        told = json.loads((folder / SUMMARY).read_text())["data_spec"]
        images = {name: told[name] for name in IMAGES}
        cfg = _configuration(folder / CONFIG)
        tensors = load_file(source)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError, SafetensorError) as error:
        below = next((f", for instance {path.parent}" for path in sorted(folder.glob(f"*/{SUMMARY}"))), "")
        raise OneshotError(
            f"{folder}: holds no finished run ({' '.join(str(error).split())}); give the folder with its {SUMMARY}, "
            f"{CONFIG} and {MODEL}{below}"
        ) from error
    spec = _spec(images, f"{folder / SUMMARY}: data_spec")
    description = ModelDescription("classifier", _nodes(cfg, folder / CONFIG), spec, tuple(images["class_names"]))
    layout = {name: (each.dtype, tuple(each.shape)) for name, each in tensors.items()}
    model = build(description, allow=allow, source=str(source), layout=layout)
    return load_model(model, tensors, str(source)).eval(), description


def _configuration(path: Path) -> Any:
    """A configuration whose values are all written out, as runs leave it.

    What stands for values elsewhere, as aliases and references do, may stand for others of its kind: a few lines would
    unfold to more than fits any memory.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OneshotError(f"{path}: is no configuration of a run (larger than {LARGEST:,} bytes)")
    text = content.decode()
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if reference := _reference(event):
            line = event.start_mark.line + 1
            raise OneshotError(
                f"{path}: is no configuration of a run (line {line}: {shown(reference)} stands for another value, and "
                "a run writes every value out)"
            )
    return OmegaConf.load(StringIO(text))


def _reference(event: Any) -> str | None:
    """An alias, or a text in which OmegaConf would put other values, as it is written."""
    if isinstance(event, yaml.AliasEvent):
        return f"*{event.anchor}"
    return event.value if isinstance(event, yaml.ScalarEvent) and "${" in event.value else None


def _nodes(cfg: Any, path: Path) -> tuple[dict[str, Any], ...]:
    """The server's architectures, each with a name or a target at least."""
    try:
        check_table("partition", {"clients": cfg.partition.clients}, {"clients": Clients})  # each gets an architecture
        nodes = tuple(plain(node) for node in server_models(cfg))
    except OneshotError as error:
        raise OneshotError(f"{path}: {error}") from error
    except Exception as error:  # OmegaConf and we ourselves raise many kinds over what is no configuration of a run
        raise OneshotError(f"{path}: is no configuration of a run ({named_line(error)})") from error
    if not all(isinstance(node, dict) and {"name", "_target_"} & node.keys() for node in nodes):
        raise OneshotError(f"{path}: is no configuration of a run (the server's model has neither name nor _target_)")
    return nodes


def _spec(told: dict[str, Any], key: str) -> DataSpec:
    """What `IMAGES` asks for."""
    check_table(key, told, IMAGES)
    if (classes := len(told["class_names"])) != told["classes"]:
        raise OneshotError(f"{key}.classes={told['classes']}: must be {classes}, as there are class_names")
    for name in ("mean", "std"):
        if len(told[name]) not in (1, told["channels"]):
            raise OneshotError(f"{key}.{name}={shown(told[name])}: must be one number, or one a channel")
    sizes = {name: told[name] for name in ("channels", "size", "classes")}
    return DataSpec(**sizes, mean=tuple(told["mean"]), std=tuple(told["std"]))
