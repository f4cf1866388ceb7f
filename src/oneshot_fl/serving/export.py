"""The global model for programs that know nothing of us: ONNX, or a program of `torch.export`; with a model card.

What is exported takes pixels in [0, 1], `[b, C, size, size]`, and gives calibrated logits and probabilities `[b, c]`:
normalisation and temperature are inside. It is written only if it answers as the model does: whole, or not at all.
"""

import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oneshot_fl.config.record import EXPORT, EXPORTED, MODEL, SUMMARY
from oneshot_fl.disk import make_folder, replace_file, require_own, write_atomically
from oneshot_fl.errors import OneshotError, named_line
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.process import say
from oneshot_fl.serving.card import is_card, is_of_aggregation, model_card
from oneshot_fl.serving.load import load
from oneshot_fl.serving.model import ServedModel

TOLERANCE = 1e-4
"""Of the largest logit, or of 1 where all are smaller: further apart, and nothing is written."""
OTHERWISE = "another folder with --out"
OF_VALUES = "what it computes depends on the values of its images, as in `if x.max() > 1`"
OF_A_COUNT = "it takes the number of its images for a constant, as by `len(x)`, where `x.shape[0]` is none"
FIXED_COUNT = ("Constraints violated", "invalid dimensions")
"""What torch, and the runtime of ONNX, say of a model that takes as many images as it was exported with."""
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


def export(place: Path, out: Path | None, formats: Sequence[str], *, allow: Collection[str] = ()) -> list[Path]:
    """Write a model in each of `formats` (`onnx`, `torch`) and its card; where they lie.

    Args:
        place: a run's folder, or a model file.
        out: for what is written; by default `export` in the run's folder, of any other model file `export/<its name>`
            beside it.
        allow: names that may be imported to build the model.

    Raises:
        OneshotError: no format is named, a library is missing, the model cannot be exported, what was exported answers
            otherwise, or where the card belongs lies a `README.md` that is none.
    """
    if not formats:
        raise OneshotError("export: say what to write, --onnx or --torch-export, or both")
    served = load(place, allow=allow)
    folder = _own_folder(place) if out is None else out
    make_folder(folder)
    card = folder / "README.md"
    _require_no_other(folder, card)
    module = PixelsIn(served).eval().requires_grad_(False)  # what asks for gradients now would ask whoever uses it too
    contents = {EXPORTED[name]: EXPORTERS[name](module, served) for name in formats}
    text = model_card(served, _summary(_run_of(place)), list(contents))
    for name, content in contents.items():
        replace_file(folder / name, content)
    write_atomically(card, text)
    _tell_of_older(folder, contents)
    return [*(folder / name for name in contents), card]


def _own_folder(place: Path) -> Path:
    """Where nothing else is exported to: of several model files in one folder each has its own."""
    if (run := _run_of(place)) is not None:
        return run / EXPORT
    return place.parent / EXPORT / (place.stem if place.suffix == Path(MODEL).suffix else place.name)


def _run_of(place: Path) -> Path | None:
    """The folder whose summary would tell of the model: a run's, also where its model file is named."""
    if place.is_dir():
        return place
    return place.parent if place.name == MODEL and (place.parent / SUMMARY).is_file() else None


def _tell_of_older(folder: Path, written: Collection[str]) -> None:
    """Another model's file beside the new card would be taken for this one's."""
    if older := [name for name in _exported_in(folder) if name not in written]:
        say(f"{folder / older[0]}: is of an earlier export; the card beside it now tells of {', '.join(written)} alone")


def _require_no_other(folder: Path, card: Path) -> None:
    """Whether nothing lies in the folder yet that would be written over, or an earlier export with its card."""
    require_own(card, is_card, "model card of ours", OTHERWISE)
    if not card.exists() and (theirs := _exported_in(folder)):
        raise OneshotError(
            f"{folder / theirs[0]}: lies there without a model card of ours and is not overwritten; choose {OTHERWISE}"
        )


def _exported_in(folder: Path) -> list[str]:
    """The names of what an export would write over there."""
    return [name for name in EXPORTED.values() if (folder / name).exists()]


def _summary(run: Path | None) -> dict[str, Any] | None:
    """Of the run that left the model, where there is one that tells class by class, or of the aggregation."""
    if run is None:
        return None
    try:
        found = json.loads((run / SUMMARY).read_text())
        return found if "by_class" in found["server"] or is_of_aggregation(found) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _onnx(module: PixelsIn, served: ServedModel) -> bytes:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it writes a queue of events and a device's id into HOME
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  # torch's exporter needs it and says so in other words
    except ImportError as error:
        raise OneshotError(f"export --onnx: {error.name} is missing; pip install 'oneshot-fl[export]'") from error
    with _exporting("--onnx"):
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
        _check(module, served, partial(_session_run, session), "ONNX")
    return content


def _session_run(session: Any, pixels: Tensor) -> list[Tensor]:
    return [torch.from_numpy(answer) for answer in session.run(None, {"pixels": pixels.numpy()})]


def _torch(module: PixelsIn, served: ServedModel) -> bytes:
    content, batch = io.BytesIO(), {"pixels": {0: torch.export.Dim("batch")}}
    with _exporting("--torch-export"):
        torch.export.save(torch.export.export(module, (_pixels(served, 2),), dynamic_shapes=batch), content)
        again = torch.export.load(io.BytesIO(content.getvalue())).module()
        _check(module, served, lambda x: list(again(x)), "torch.export")
    return content.getvalue()


EXPORTERS: dict[str, Callable[[PixelsIn, ServedModel], bytes]] = {"onnx": _onnx, "torch": _torch}


def _pixels(served: ServedModel, count: int) -> Tensor:
    """Random ones, always the same."""
    spec, rng = served.spec, torch.Generator().manual_seed(count)
    return torch.rand(count, spec.channels, spec.size, spec.size, generator=rng)


@torch.no_grad()
def _check(module: PixelsIn, served: ServedModel, run: Runner, what: str) -> None:
    """Whether it answers as the model does, for batches of several sizes."""
    for count in BATCHES:
        pixels = _pixels(served, count)
        gap = max(_gap(own, other) for own, other in zip(module(pixels), run(pixels), strict=True))
        if not gap <= TOLERANCE:
            raise OneshotError(f"export: {what} answers otherwise than the model, by {gap:.2g}; it is of no use")


def _gap(own: Tensor, other: Tensor) -> float:
    """The largest difference, as a share of the largest number where that is above 1: what rounding takes from it."""
    return float((own - other).abs().max() / own.abs().max().clamp_min(1))


@contextmanager
def _exporting(option: str) -> Iterator[None]:
    """Whatever goes wrong inside the block is one line, and what exporters tell of their own doings is not printed."""
    logged = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stderr(io.StringIO()):  # torch prints graphs there
            yield
    except OneshotError:
        raise
    except Exception as error:  # whatever torch, ONNX or the model itself raises is its answer to this model
        cause = named_line(_first_cause(error))
        why = OF_A_COUNT if any(words in cause for words in FIXED_COUNT) else OF_VALUES
        raise OneshotError(f"export {option}: this model cannot be exported, often because {why} ({cause})") from error
    finally:
        logging.disable(logged)


def _first_cause(error: BaseException) -> BaseException:
    """What the others were raised from, which say where it happened and not what."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
