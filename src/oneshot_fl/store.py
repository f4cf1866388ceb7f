"""The store: content-addressed results of phases, shared by all runs.

`<store>/<phase>/<key>/` holds `tensors.safetensors` and `manifest.json`; the key is the SHA-256 of everything the
result depends on. Writing goes to a neighbour folder that is renamed when complete, under a file lock, so a reader
never sees half an artifact and two processes never make the same one twice.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.files import write_atomically

TENSORS, MANIFEST = "tensors.safetensors", "manifest.json"


@dataclass
class Artifact:
    """What a phase hands over: named tensors, JSON facts, and (once stored) its key and the seconds it took."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    key: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Store:
    """A folder of artifacts, one sub-folder a phase."""

    root: Path
    context: Mapping[str, Any] = field(default_factory=dict)
    """What every key depends on besides the phase's own inputs: versions, device, precision."""

    def get_or_make(
        self, phase: str, inputs: Mapping[str, Any], make: Callable[[Path], Artifact], *, waiting: Any = None
    ) -> Artifact:
        """Load the artifact that belongs to `inputs`, or `make` and store it; a second process waits and loads.

        `make` gets a work folder for checkpoints that outlives a killed process and is removed on success.
        """
        described = {"phase": phase, "inputs": dict(inputs), "context": dict(self.context)}
        key = fingerprint(described)
        final = self.root / phase / key
        if not final.is_dir():
            final.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(final.with_suffix(".lock")):
                if not final.is_dir():
                    self._make(final, described, make)
        return load_artifact(final)

    def _make(self, final: Path, described: dict[str, Any], make: Callable[[Path], Artifact]) -> None:
        work, fresh = final.with_suffix(".work"), final.with_suffix(".new")
        work.mkdir(exist_ok=True)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        begun = time.perf_counter()
        artifact = make(work)
        seconds = artifact.seconds + time.perf_counter() - begun
        digest = save_tensors(artifact.tensors, fresh / TENSORS)
        manifest = {**described, "facts": artifact.facts, "seconds": seconds, "sha256": digest}
        write_atomically(fresh / MANIFEST, json.dumps(manifest, indent=1))
        os.replace(fresh, final)
        shutil.rmtree(work, ignore_errors=True)


def fingerprint(inputs: Any) -> str:
    """The first 80 bits of the SHA-256 of canonical JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:20]


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> str:
    """Write tensors as safetensors and return the SHA-256 of the file."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(plain, path)
    return _sha256(path)


def load_artifact(folder: Path) -> Artifact:
    """Load an artifact after checking that the tensors are the ones the manifest was written for.

    Raises:
        OneshotError: a file is missing, unreadable, or the SHA-256 differs.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if _sha256(folder / TENSORS) != manifest["sha256"]:
            raise OneshotError(
                f"{folder / TENSORS} differs from the SHA-256 in its manifest: remove {folder} to make it again"
            )
        tensors = load_file(folder / TENSORS)
        return Artifact(tensors, manifest["facts"], key=folder.name, seconds=manifest["seconds"])
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise OneshotError(f"{folder} is not a complete artifact ({error}): remove it to make it again") from error


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
        if not bool(torch.isfinite(given).all()):
            raise OneshotError(f"{source}: tensor {name} holds a value that is not finite; train that client again")
    model.load_state_dict(dict(tensors))
    return model


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_store(root: Path, context: Mapping[str, Any]) -> Store:
    """The store at `root`, made if it is not there.

    Raises:
        OneshotError: the folder cannot be made or written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        raise OneshotError(f"store={root}: cannot be written ({error.strerror}); set another folder") from error
    return Store(root, context)
