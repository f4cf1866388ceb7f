"""The global model for programs that know nothing of us: ONNX, or a program of `torch.export`; with a model card.

What is exported takes pixels in [0, 1], `[b, C, size, size]`, and gives calibrated logits and probabilities `[b, c]`:
normalisation and temperature are inside. It is written only if it answers as the model does.
"""

import json
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oneshot_fl.config.record import SUMMARY
from oneshot_fl.disk import make_folder, write_atomically, writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.serving.card import model_card
from oneshot_fl.serving.load import load
from oneshot_fl.serving.model import ServedModel

TOLERANCE = 1e-4
"""Of logits: further apart, and nothing is written."""
BATCHES = (1, 5)
"""Sizes of the batches that are compared."""
Runner = Callable[[Tensor], list[Tensor]]
"""What was exported: pixels `[b, C, H, W]` -> logits and probabilities `[b, c]`."""


class PixelsIn(nn.Module):
    """The model with what belongs before and behind it."""

    mean: Tensor
    std: Tensor

    def __init__(self, served: ServedModel) -> None:
        super().__init__()
        self.model, self.temperature = served.model, served.temperature
        self.register_buffer("mean", torch.tensor(served.spec.mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(served.spec.std).view(1, -1, 1, 1))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels in [0, 1], `[b, C, H, W]` -> calibrated logits and probabilities `[b, c]`."""
        logits = at_least_float32(self.model((pixels - self.mean) / self.std)) / self.temperature
        return logits, logits.softmax(dim=1)


def export(place: Path, out: Path | None, formats: Sequence[str], *, allowed: Collection[str] = ()) -> list[Path]:
    """Write a model in each of `formats` (`onnx`, `torch`) and its card; where they lie.

    Args:
        place: a run's folder, or a model file.
        out: for what is written; by default `export` beside the model file.
        allowed: names that may be imported to build the model.

    Raises:
        OneshotError: no format is named, a library is missing, the model cannot be exported, or what was exported
            answers otherwise.
    """
    if not formats:
        raise OneshotError("export: say what to write, --onnx or --torch-export, or both")
    served = load(place, allowed=allowed)
    folder = out if out is not None else (place if place.is_dir() else place.parent) / "export"
    make_folder(folder)
    paths = [WRITERS[name](PixelsIn(served).eval(), served, folder) for name in formats]
    card = folder / "README.md"
    write_atomically(card, model_card(served, _summary(place), [path.name for path in paths]))
    return [*paths, card]


def _summary(place: Path) -> dict[str, Any] | None:
    """Of the run that left the model, where there is one that tells class by class."""
    try:
        found = json.loads((place / SUMMARY).read_text())
    except (OSError, ValueError):
        return None
    return found if "by_class" in found.get("server", {}) else None


def _onnx(module: PixelsIn, served: ServedModel, folder: Path) -> Path:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  # torch's exporter needs it and says so in other words
    except ImportError as error:
        raise OneshotError(f"export --onnx: {error.name} is missing; pip install 'oneshot-fl[export]'") from error
    path = folder / "model.onnx"
    with _quiet_exporter():
        program = torch.onnx.export(
            module,
            (_pixels(served, 2),),
            input_names=["pixels"],
            output_names=["logits", "probabilities"],
            dynamic_shapes={"pixels": {0: torch.export.Dim("batch")}},
            dynamo=True,
            verbose=False,
        )
    content = program.model_proto.SerializeToString()  # type: ignore[union-attr]  # with dynamo it is a program
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    _check(module, served, lambda x: [torch.from_numpy(y) for y in session.run(None, {"pixels": x.numpy()})], "ONNX")
    with writing(str(path)):
        path.write_bytes(content)
    return path


def _torch(module: PixelsIn, served: ServedModel, folder: Path) -> Path:
    path = folder / "model.pt2"
    program = _exported(module, served)
    with writing(str(path)):
        torch.export.save(program, path)
    again = torch.export.load(path).module()
    _check(module, served, lambda x: list(again(x)), "torch.export")
    return path


WRITERS: dict[str, Callable[[PixelsIn, ServedModel, Path], Path]] = {"onnx": _onnx, "torch": _torch}


def _exported(module: PixelsIn, served: ServedModel) -> torch.export.ExportedProgram:
    batch = {"pixels": {0: torch.export.Dim("batch")}}
    return torch.export.export(module, (_pixels(served, 2),), dynamic_shapes=batch)


def _pixels(served: ServedModel, count: int) -> Tensor:
    """Random ones, always the same."""
    spec, rng = served.spec, torch.Generator().manual_seed(count)
    return torch.rand(count, spec.channels, spec.size, spec.size, generator=rng)


@torch.no_grad()
def _check(module: PixelsIn, served: ServedModel, run: Runner, what: str) -> None:
    """Whether it answers as the model does, for batches of several sizes."""
    for count in BATCHES:
        pixels = _pixels(served, count)
        gap = max(float((own - other).abs().max()) for own, other in zip(module(pixels), run(pixels), strict=True))
        if not gap <= TOLERANCE:
            raise OneshotError(f"export: {what} answers otherwise than the model, by {gap:.2g}; it is of no use")


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without what it tells of its own doings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch.onnx", "onnxscript"):
            logging.getLogger(name).setLevel(logging.ERROR)
        yield
