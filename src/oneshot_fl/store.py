"""The store: content-addressed results of phases, shared by all runs.

`<store>/<phase>/<key>/` holds `tensors.safetensors` and `manifest.json`; the key is the SHA-256 of everything the
result depends on. Writing goes to a neighbour folder that is renamed when complete, under a file lock, so a reader
never sees half an artifact and two processes never make the same one twice. Everything that is read is checked: an
artifact that is not what was stored under its key is set aside as `<key>.damaged` and made again, which loses nothing
and never uses it; a work file that is not what was written counts as absent.
"""

import errno
import hashlib
import io
import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from oneshot_fl.disk import reason, remove, replace_file, sync, write_file, writing
from oneshot_fl.errors import OneshotError

TENSORS, MANIFEST = "tensors.safetensors", "manifest.json"
DESCRIBED = ("phase", "inputs", "context")
"""What of a manifest makes the key."""
FIELDS = {*DESCRIBED, "facts", "seconds", "sha256"}
DAMAGED, LOCK, NEW, WORK = ".damaged", ".lock", ".new", ".work"
"""What lies beside artifacts: set aside, for one process at a time, half written, and half made."""
NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DamagedError(Exception):
    """A folder is not the artifact that was stored under its name; the message says why."""


def _to_stderr(line: str) -> None:
    print(f"oneshot_fl: {line}", file=sys.stderr)


@dataclass
class Artifact:
    """What a phase hands over: named tensors, JSON facts, and (once stored) its key and the seconds it took."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    key: str = ""
    seconds: float = 0.0
    from_store: bool = False
    """Whether it was there already; `seconds` are then those of the process that made it."""


@dataclass(frozen=True)
class Store:
    """A folder of artifacts, one sub-folder per phase."""

    root: Path
    context: Mapping[str, Any] = field(default_factory=dict)
    """What every key depends on besides the phase's own inputs: versions, device, precision."""
    note: Callable[[str], None] = _to_stderr
    """Called with one line when a damaged artifact is set aside."""

    def get_or_make(
        self,
        phase: str,
        inputs: Mapping[str, Any],
        make: Callable[[Path], Artifact],
        *,
        waiting: Callable[[str], None] | None = None,
    ) -> Artifact:
        """Load the artifact that belongs to `inputs`, or `make` and store it; a second process waits and loads.

        `make` gets a work folder for checkpoints that outlives a killed process and is removed on success. `waiting`
        is called once, with what is waited for, where another process is making the same.

        Raises:
            OneshotError: the store cannot be written or read, or a tensor holds a value that is not finite.
        """
        described = _as_read({"phase": phase, "inputs": dict(inputs), "context": dict(self.context)})
        final = self.root / phase / fingerprint(described)
        found = _intact(final)
        if found is None:
            with self._locked(final, waiting):
                found = self._intact_or_set_aside(final)
                if found is None:
                    return self._make(final, described, make)
        if (left := final.with_suffix(WORK)).exists():  # by a process that was killed after the artifact was complete
            shutil.rmtree(left, ignore_errors=True)  # in a shared store it may be somebody else's
        return replace(found, from_store=True)

    @contextmanager
    def _locked(self, final: Path, waiting: Callable[[str], None] | None) -> Iterator[None]:
        with self._writing():
            final.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(final.with_suffix(LOCK))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if waiting is not None:
                    waiting(f"another process is making {final.parent.name}/{final.name} in store={self.root}")
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _intact_or_set_aside(self, final: Path) -> Artifact | None:
        try:
            return read_artifact(final) if os.path.lexists(final) else None
        except DamagedError as damage:
            aside = final.with_suffix(DAMAGED)
            with self._writing():
                remove(aside)
                os.replace(final, aside)
            self.note(f"{final} was damaged ({damage}): it is now {aside.name}, and is made again")
            return None

    def _make(self, final: Path, described: dict[str, Any], make: Callable[[Path], Artifact]) -> Artifact:
        work, fresh = final.with_suffix(WORK), final.with_suffix(NEW)
        with self._writing():
            if not work.is_dir():
                remove(work)
                work.mkdir()
        begun = time.perf_counter()
        artifact = make(work)
        seconds = artifact.seconds + time.perf_counter() - begun
        check_finite(artifact.tensors, final.parent.name)
        try:
            with self._writing():
                remove(fresh)
                fresh.mkdir()
                _write_artifact(fresh, {**described, "facts": _as_read(artifact.facts), "seconds": seconds}, artifact)
                os.replace(fresh, final)
                sync(final.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)
        try:
            return read_artifact(final)
        except DamagedError as damage:
            raise OneshotError(f"store={self.root}: what was just written reads back otherwise ({damage})") from damage

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with writing(f"store={self.root}"):
            yield


def open_store(root: Path, context: Mapping[str, Any]) -> Store:
    """The store at `root`, made if it is not there.

    Raises:
        OneshotError: the folder cannot be made or written.
    """
    with writing(f"store={root}"):
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    return Store(root, context)


def _as_read(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON makes of them: what was just made equals what will be loaded."""
    read: dict[str, Any] = json.loads(json.dumps(facts))
    return read


def fingerprint(inputs: Any) -> str:
    """The first 80 bits of the SHA-256 of canonical JSON, in hexadecimal."""
    return _checksum(inputs)[:20]


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    """Refuse what no later phase can use.

    Raises:
        OneshotError: naming `source` and the first tensor that holds a value that is not finite.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise OneshotError(f"{source}: tensor {name} holds a value that is not finite; it is not used")


def _intact(folder: Path) -> Artifact | None:
    try:
        return read_artifact(folder)
    except DamagedError:  # or absent: decided under the lock
        return None


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
    return Artifact(tensors, manifest["facts"], folder.name, manifest["seconds"])


def read_manifest(folder: Path) -> dict[str, Any]:
    """What an artifact was made from (`phase`, `inputs`, `context`), `facts` and `seconds`.

    Raises:
        DamagedError: it is not what was written, or was written for another key.
        OSError: it is absent or cannot be read.
    """
    try:
        manifest = json.loads(_regular(folder / MANIFEST).read_bytes())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{MANIFEST} is no JSON") from error
    sealed = isinstance(manifest, dict) and manifest.pop("checksum", None) == _checksum(manifest)
    if not sealed or set(manifest) != FIELDS:
        raise DamagedError(f"{MANIFEST} is not what was written")
    if (key := fingerprint({name: manifest[name] for name in DESCRIBED})) != folder.name:
        raise DamagedError(f"it belongs to the key {key}")
    return manifest


def _read_tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    if _sha256(_regular(path)) != sha256:
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


def _write_artifact(folder: Path, manifest: dict[str, Any], artifact: Artifact) -> None:
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
        return _sha256(path)


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
