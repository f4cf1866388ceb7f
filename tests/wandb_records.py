"""What an offline run of Weights & Biases holds, read back from its binary log.

The log is LevelDB's: blocks of 32 KiB with pieces of records. Each piece stands behind 4 bytes of checksum, 2 of
length and 1 that says whether the record is whole (1), begins (2), goes on (3) or ends (4); 7 bytes of W&B's own stand
before all.
"""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from wandb.proto import wandb_internal_pb2 as proto

BLOCK, HEADER, OWN = 32 * 1024, 7, 7
WHOLE, FIRST, LAST = 1, 2, 4


@dataclass
class OfflineRun:
    """The records of a run by what they are about."""

    run: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    """Types by name."""
    exit_code: int | None = None


def read_back(folder: Path, patience: float = 60) -> OfflineRun:
    """The only offline run below a folder, once it is written: W&B's own process does that when it gets to it."""
    (path,) = folder.rglob("run-*.wandb")
    until = time.monotonic() + patience
    while (found := _read(path)).exit_code is None and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _read(path: Path) -> OfflineRun:
    found = OfflineRun()
    for record in records(path.read_bytes()):
        _take(found, record)
    return found


def _take(found: OfflineRun, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        found.run |= MessageToDict(record.run, preserving_proto_field_name=True)
        found.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
    elif kind == "history":
        found.history.append(_items(record.history.item))
    elif kind == "summary":
        found.summary |= _items(record.summary.update)
    elif kind == "artifact":
        found.artifacts[record.artifact.name] = record.artifact.type
    elif kind == "exit":
        found.exit_code = record.exit.exit_code


def _items(items: Any) -> dict[str, Any]:
    """Values by their key; of nested ones a dictionary."""
    found: dict[str, Any] = {}
    for item in items:
        key, *inner = item.nested_key or [item.key]
        value = json.loads(item.value_json)
        found[key] = {**found.get(key, {}), "/".join(inner): value} if inner else value
    return found


def records(log: bytes) -> Iterator[Any]:
    """Every record of a log."""
    begun = b""
    for kind, piece in _pieces(log):
        begun = piece if kind in (WHOLE, FIRST) else begun + piece
        if kind in (WHOLE, LAST):
            yield proto.Record.FromString(begun)


def _pieces(log: bytes) -> Iterator[tuple[int, bytes]]:
    at = OWN
    while at + HEADER <= len(log):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", log, at)
        if kind:
            yield kind, log[at + HEADER : at + HEADER + length]
        at += HEADER + length
