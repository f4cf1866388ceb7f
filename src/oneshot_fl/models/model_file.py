"""Model files: safetensors whose metadata describe the model. Whoever wrote one is not trusted.

The header is read by our own code before the library sees the file: its length, its JSON, that the tensors lie one
behind the other and fill the file. A file is read once; what is checked is what is used.
"""

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from oneshot_fl.artifacts import save_tensors
from oneshot_fl.disk import make_folder, reason, replacing
from oneshot_fl.errors import OneshotError, one_line
from oneshot_fl.fits import shown
from oneshot_fl.models.described import ModelDescription, described_by

LARGEST = 2 * 10**9
"""Bytes of a file that is read."""
LARGEST_HEADER = 4 * 10**6
"""Bytes of the header; 20,000 tensors with long names take less."""
MOST_TENSORS, MOST_AXES, LARGEST_SIZE = 20_000, 8, 2**40
"""Tensors in a file, axes of one, and how many numbers it may claim to have."""
DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
"""Type and shape of every tensor, by its name."""


@dataclass(frozen=True)
class ModelFile:
    """A model file as it was read: its bytes are sound, its tensors are not yet known to fit its architecture."""

    source: str
    """What errors call it."""
    description: ModelDescription
    layout: Layout
    content: bytes
    sha256: str
    """Of the whole file."""

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by its name.

        Raises:
            OneshotError: the library finds something wrong that the header did not show.
        """
        try:
            return load(self.content)
        except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
            raise OneshotError(f"{self.source}: is no sound safetensors file ({one_line(error)})") from error


def write_model(path: Path, tensors: Mapping[str, Tensor], description: ModelDescription) -> str:
    """Write a model file, and its folder where there is none, and return its SHA-256.

    A file that was there is replaced by the whole of the new one.

    Raises:
        OneshotError: the disk is full, or the folder cannot be written.
    """
    make_folder(path.parent)
    with replacing(path) as new:
        return save_tensors(tensors, new, description.metadata())


def read_model(
    path: Path, *, source: str | None = None, largest: int = LARGEST, follow_links: bool = False
) -> ModelFile:
    """A model file from the disk; only a regular file is opened.

    Args:
        source: what errors call it; by default its path.
        largest: bytes that it may have.
        follow_links: whether the path may be a symbolic link. Whoever uploads one would have the server read a file
            that is not theirs; the owner of this machine may name a model by one.

    Raises:
        OneshotError: it is no such file, too large, damaged, or does not describe its model.
    """
    name = str(path) if source is None else source
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW))
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise OneshotError(f"{name}: is no regular file")
            content = file.read(largest + 1)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            raise OneshotError(f"{name}: cannot be read (it is a link, not a regular file)") from error
        raise OneshotError(f"{name}: cannot be read ({reason(error)})") from error
    if len(content) > largest:
        raise OneshotError(f"{name}: is larger than {largest:,} bytes")
    return parse_model(content, name)


def parse_model(content: bytes, source: str) -> ModelFile:
    """A model file from its bytes.

    Raises:
        OneshotError: it is damaged, no safetensors file, or does not describe its model.
    """
    header, size = _header(content, source)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise OneshotError(f"{source}: its metadata are no texts by names")
    if len(header) > MOST_TENSORS:
        raise OneshotError(f"{source}: holds {len(header):,} tensors, more than {MOST_TENSORS:,}")
    spans = {name: _span(name, told, source) for name, told in header.items()}
    _check_filled([span[2:] for span in spans.values()], len(content) - size, source)
    description = described_by(metadata, source)
    layout = {name: span[:2] for name, span in spans.items()}
    return ModelFile(source, description, layout, content, hashlib.sha256(content).hexdigest())


def _header(content: bytes, source: str) -> tuple[dict[str, Any], int]:
    """The header's JSON object, and how many bytes come before the tensors."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8 or content[8:9] != b"{":
        raise OneshotError(f"{source}: is no safetensors file (files are never read as pickles)")
    if length > LARGEST_HEADER:
        raise OneshotError(f"{source}: its header is larger than {LARGEST_HEADER:,} bytes")
    try:
        header = json.loads(content[8 : 8 + length].decode())
    except (ValueError, RecursionError) as error:
        raise OneshotError(f"{source}: its header is no JSON") from error
    if not isinstance(header, dict):
        raise OneshotError(f"{source}: its header is no JSON object")
    return header, 8 + length


def _span(name: str, told: Any, source: str) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    """Type, shape, first and last byte of one tensor, as the header tells them."""
    fields = told if isinstance(told, dict) else {}
    dtype = DTYPES.get(fields["dtype"]) if isinstance(fields.get("dtype"), str) else None
    shape, offsets = (_whole(fields.get(name), most) for name, most in (("shape", MOST_AXES), ("data_offsets", 2)))
    if set(fields) != {"dtype", "shape", "data_offsets"} or dtype is None:
        raise OneshotError(f"{source}: tensor {shown(name)} has no type, shape and place that are known")
    if shape is None or offsets is None or len(offsets) != 2:
        raise OneshotError(f"{source}: tensor {shown(name)} has a shape or place that cannot be")
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise OneshotError(f"{source}: tensor {shown(name)} has other bytes than its shape takes")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _whole(numbers: Any, most: int) -> list[int] | None:
    """At most so many whole numbers of a size that can be; None where they are anything else."""
    if not isinstance(numbers, list) or len(numbers) > most:
        return None
    return numbers if all(type(number) is int and 0 <= number <= LARGEST_SIZE for number in numbers) else None


def _check_filled(places: list[tuple[int, int]], size: int, source: str) -> None:
    """Whether the tensors lie one behind the other, from the first byte to the last."""
    borders = [(0, 0), *sorted(places), (size, size)]
    if any(before[1] != after[0] for before, after in pairwise(borders)):
        raise OneshotError(f"{source}: its tensors do not fill the file: it is cut off, or something else is in it")
