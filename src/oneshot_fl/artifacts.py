"""What a phase hands over, as files that are checked when they are read, and the keys that they are stored under.

An artifact is a folder with `tensors.safetensors` and `manifest.json`, named by the SHA-256 of everything that the
result depends on. Work files are what an unfinished phase leaves; one that is not what was written counts as absent.
"""

import errno
import hashlib
import io
import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from oneshot_fl.disk import reason, replace_file, sha256_of, sync, write_file, writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.ledger import NOTHING, Cost, cost_of, total

TENSORS, MANIFEST = "tensors.safetensors", "manifest.json"
DESCRIBED = ("phase", "inputs", "context")
"""What of a manifest makes the key."""
FIELDS = {*DESCRIBED, "facts", "cost", "sha256"}
FIELDS_BEFORE = FIELDS - {"cost"} | {"seconds"}
"""Of manifests that earlier versions wrote."""
NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DamagedError(Exception):
    """A folder is not the artifact that was stored under its name; the message says why."""


@dataclass
class Artifact:
    """What a phase hands over: named tensors, JSON facts, and (once stored) its key and what it cost."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    key: str = ""
    cost: Cost = NOTHING
    """Of a phase's own: what earlier processes spent on it, and what it counted. Once stored: all of it."""
    from_store: bool = False
    """Whether it was there already; the cost is then that of the process that made it."""


@dataclass(frozen=True)
class Spent:
    """What the results of a phase cost, and how many of them somebody had made before."""

    cost: Cost
    results: int
    from_store: int

    @classmethod
    def on(cls, artifacts: Sequence[Artifact]) -> "Spent":
        """All of these artifacts."""
        return cls(total(one.cost for one in artifacts), len(artifacts), sum(one.from_store for one in artifacts))


def fingerprint(inputs: Any) -> str:
    """The first 80 bits of the SHA-256 of canonical JSON, in hexadecimal."""
    return _checksum(inputs)[:20]


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def tensor_hash(tensors: Iterable[Tensor]) -> str:
    """The SHA-256 of the bytes of tensors, one behind the other, in hexadecimal."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    """Refuse what no later phase can use.

    Raises:
        OneshotError: naming `source` and the first tensor that holds a value that is not finite.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise OneshotError(f"{source}: tensor {name} holds a value that is not finite; it is not used")


def read_artifact(folder: Path) -> Artifact:
    """Load an artifact after checking that it is what was stored under the folder's name.

    Raises:
        DamagedError: it is not, or parts of it are missing.
        OneshotError: it cannot be read, for instance for want of permission.
    """
    try:
        manifest = read_manifest(folder)
        tensors = _read_tensors(folder / TENSORS, manifest["sha256"])
    except NOT_THERE as error:
        raise DamagedError(f"{Path(str(error.filename)).name} is missing") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedError("a link leads back to itself") from error
        raise OneshotError(f"{folder} cannot be read: {reason(error)}") from error
    return Artifact(tensors, manifest["facts"], folder.name, cost_of(manifest["cost"]))


def read_manifest(folder: Path) -> dict[str, Any]:
    """What an artifact was made from (`phase`, `inputs`, `context`), `facts` and `cost`.

    Raises:
        DamagedError: it is not what was written, or was written for another key.
        OSError: it is absent or cannot be read.
    """
    try:
        manifest = json.loads(_regular(folder / MANIFEST).read_bytes())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{MANIFEST} is no JSON") from error
    sealed = isinstance(manifest, dict) and manifest.pop("checksum", None) == _checksum(manifest)
    if sealed and set(manifest) == FIELDS_BEFORE:
        manifest["cost"] = {"seconds": manifest.pop("seconds")}
    if not sealed or set(manifest) != FIELDS:
        raise DamagedError(f"{MANIFEST} is not what was written")
    if (key := fingerprint({name: manifest[name] for name in DESCRIBED})) != folder.name:
        raise DamagedError(f"it belongs to the key {key}")
    return manifest


def _read_tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    if sha256_of(_regular(path)) != sha256:
        raise DamagedError(f"{path.name} is not what was written")
    try:
        tensors = load_file(path)
        check_finite(tensors, path.name)
    except (SafetensorError, OneshotError) as error:
        raise DamagedError(str(error)) from error
    return tensors


def _regular(path: Path) -> Path:
    """The path, if opening it cannot hang, as it would for a named pipe."""
    if path.exists() and not path.is_file():
        raise DamagedError(f"{path.name} is no file")
    return path


def write_artifact(folder: Path, manifest: dict[str, Any], artifact: Artifact) -> None:
    """Write what `read_artifact` reads: `manifest` are all `FIELDS` but the tensors' own.

    Raises:
        OneshotError: the disk is full, or the folder cannot be written.
    """
    manifest["sha256"] = save_tensors(artifact.tensors, folder / TENSORS)
    text = json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1)
    write_file(folder / MANIFEST, text.encode())
    sync(folder)


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> str:
    """Write tensors as safetensors, with the mode that the umask gives, and return the SHA-256 of the file.

    Args:
        tensors: by their names.
        path: of the file.
        metadata: texts that the file carries along.

    Raises:
        OneshotError: the disk is full, or the folder cannot be written.
    """
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with writing(str(path.parent)):
        path.write_bytes(b"")
        mode = path.stat().st_mode
        save_file(plain, path, None if metadata is None else dict(metadata))
        path.chmod(mode)  # safetensors leaves 0600, which nobody else in a group can read
        sync(path)
        return sha256_of(path)


def load_model(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> nn.Module:
    """Load a state dict after checking names, shapes, dtypes and that every number is finite.

    Raises:
        OneshotError: naming `source` and the first tensor that does not fit.
    """
    expected = model.state_dict()
    for name in sorted(expected.keys() ^ tensors.keys()):
        which = "missing" if name in expected else "unexpected"
        raise OneshotError(f"{source}: tensor {name} is {which}; the upload does not fit {type(model).__name__}")
    for name, wanted in expected.items():
        given = tensors[name]
        if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
            raise OneshotError(
                f"{source}: tensor {name} is {given.dtype} {tuple(given.shape)}, "
                f"expected {wanted.dtype} {tuple(wanted.shape)}"
            )
    check_finite(tensors, source)
    model.load_state_dict(dict(tensors))
    return model


def write_work(path: Path, content: Any) -> None:
    """Write a work file, of tensors and built-in types, such that `read_work` tells it from any other content.

    Raises:
        OneshotError: the disk is full, or the folder cannot be written.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getvalue()
    replace_file(path, _seal(path, payload) + payload)


def read_work(path: Path) -> Any | None:
    """What `write_work` wrote to this very path; None where it is absent, unreadable or anything else."""
    try:
        content = _regular(path).read_bytes()
        seal, payload = content[:32], content[32:]
        if seal != _seal(path, payload):
            return None
        return torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
    except (OSError, DamagedError, RuntimeError, pickle.UnpicklingError):
        return None


def _seal(path: Path, payload: bytes) -> bytes:
    """32 bytes of SHA-256 over the file's place and content, so that a swapped file is not taken for this one."""
    return hashlib.sha256(f"{path.parent.name}/{path.name}\n".encode() + payload).digest()
