"""Mutated upload files through everything that reads them: `python -m tests.fuzz.uploads --files 10000`.

Counted are files that crashed a reader (anything but one plain line), hung it, or ran code of theirs.
"""

import argparse
import io
import json
import os
import pickle
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

from oneshot_fl.aggregation.federation import federation_of
from oneshot_fl.aggregation.found import found_in
from oneshot_fl.config.compose import plain, recipe
from oneshot_fl.config.described import build
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import write_model
from oneshot_fl.parts.slots import step_for
from tests.composing import compose_config

SPEC = DataSpec(1, 8, 3, (0.5,), (0.5,))
LARGEST = 50_000_000
SECONDS = 20
NASTY: tuple[object, ...] = (
    *(None, True, -1, 0, 2**63, 1e308, "", "x" * 10_000, [], {}, [[[[[[]]]]]], "../../etc/passwd", "${oc.env:HOME}"),
    *("os.system", "builtins.exec", "canary.run", {"_target_": "canary.run"}, "__class__", "\x00", "\ud800"),
)


class Canary:
    """Its pickle makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, (f"touch {self.path}",)


def sound(folder: Path) -> list[bytes]:
    """A classifier's and a decoder's upload, as bytes."""
    spec, names = SPEC, ("a", "b", "c")
    told = [
        ModelDescription("classifier", ({"name": "cnn2"},), spec, names, samples=3),
        ModelDescription("decoder", ({"name": "cvae_mlp"},), spec, names, label_counts=(1, 1, 1), samples=3),
    ]
    files = []
    for each in told:
        write_model(folder / "sound.safetensors", build(each).state_dict(), each)
        files.append((folder / "sound.safetensors").read_bytes())
    return files


def mutated(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    """One hostile file by its name: a mutated upload, or a zip of some."""
    kind = rng.choice(list(KINDS))
    return KINDS[kind](rng, base, canary)


def _flips(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    content = bytearray(base)
    end = rng.choice([8, 600, len(content)])
    for _ in range(rng.randint(1, 40)):
        content[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return {"flipped.safetensors": bytes(content)}


def _cut(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    content = base[: rng.randrange(len(base))] if rng.random() < 0.7 else base + rng.randbytes(rng.randint(1, 999))
    return {"cut.safetensors": content}


def _length(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    length = rng.choice([0, 1, 2**31, 2**40, 2**63, 2**64 - 1, len(base), rng.randrange(10**6)])
    return {"length.safetensors": struct.pack("<Q", length) + base[8:]}


def _header(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    length = int.from_bytes(base[:8], "little")
    header = json.loads(base[8 : 8 + length])
    _spoil(rng, header)
    if isinstance(header.get("__metadata__"), dict) and rng.random() < 0.8:
        told = json.loads(json.loads(base[8 : 8 + length])["__metadata__"]["oneshot_fl"])
        _spoil(rng, told)
        header["__metadata__"] = {"oneshot_fl": json.dumps(told)}
    text = json.dumps(header).encode()
    return {"header.safetensors": struct.pack("<Q", len(text)) + text + base[8 + length :]}


def _spoil(rng: random.Random, node: object) -> None:
    """Replace, drop or add a value somewhere inside."""
    while isinstance(node, dict | list) and node:
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        inner = node[key]  # type: ignore[index, call-overload]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.4:
            if rng.random() < 0.2 and isinstance(node, dict):
                del node[key]
            else:
                node[key] = rng.choice(NASTY)  # type: ignore[index, call-overload]
            return
        node = inner


def _deep(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    text = rng.choice([b"[", b'{"a":']) * rng.randint(10, 200_000)
    return {"deep.safetensors": struct.pack("<Q", len(text) + 1) + b"{" + text}


def _pickled(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    content = pickle.dumps(Canary(canary))
    if rng.random() < 0.5:
        buffer = io.BytesIO()
        torch.save({"x": Canary(canary)}, buffer)
        content = buffer.getvalue()
    return {rng.choice(["a.safetensors", "a.pt", "a.pkl", "a.bin"]): content}


def _zipped(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    buffer = io.BytesIO()
    names = [
        "../up.safetensors",
        "/abs.safetensors",
        "a\\..\\b.safetensors",
        "C:/x.safetensors",
        "a.safetensors",
        "..",
        "",
    ]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for _ in range(rng.randint(1, 4)):
            info = zipfile.ZipInfo(rng.choice(names))
            info.external_attr = rng.choice([0, 0o120777 << 16, 0o100644 << 16, 0o010644 << 16])
            inner = rng.choice([_flips, _cut, _header, _pickled])(rng, base, canary)
            archive.writestr(info, next(iter(inner.values())))
    content = bytearray(buffer.getvalue())
    for _ in range(rng.choice([0, 0, 1, 20])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return {"many.zip": bytes(content)}


def _bomb(rng: random.Random, base: bytes, canary: Path) -> dict[str, bytes]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("b.safetensors", "w") as file:
        for _ in range(rng.randint(60, 120)):
            file.write(bytes(1_000_000))
    return {"bomb.zip": buffer.getvalue()}


KINDS: dict[str, Callable[[random.Random, bytes, Path], dict[str, bytes]]] = {
    **{f"header {number}": _header for number in range(6)},
    **{f"flips {number}": _flips for number in range(4)},
    **{f"zip {number}": _zipped for number in range(3)},
    **{"cut": _cut, "length": _length, "deep": _deep, "pickle": _pickled},
}


def _hung(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def judge(path: Path, gate: Callable[..., object]) -> str:
    """What became of one file: refused, used, or how it did harm."""
    signal.alarm(SECONDS)
    try:
        federation = federation_of(found_in(path, largest=LARGEST))
        left = step_for(gate, federation.spec)(federation.uploads).named()  # type: ignore[arg-type]
    except OneshotError as error:
        return "refused" if "\n" not in str(error) else "crashed: more than one line"
    except TimeoutError:
        return "hung"
    except BaseException as error:  # that is what is counted
        return f"crashed: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return "used" if left else "quarantined"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=None, help="a folder for files that did harm")
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, _hung)
    warnings.simplefilter("ignore")  # zips of ours hold one name twice
    rng, counts, begun = random.Random(given.seed), Counter[str](), time.perf_counter()
    gate = recipe(plain(compose_config("gate=checks").gate))
    with tempfile.TemporaryDirectory() as folder:
        canary, bases = Path(folder, "canary"), sound(Path(folder))
        for number in range(given.files):
            make = _bomb if number % 500 == 0 else mutated
            (name, content), *_ = make(rng, rng.choice(bases), canary).items()
            place = Path(folder, f"{number}")
            place.mkdir()
            (place / name).write_bytes(content)
            outcome = judge(place / name if name.endswith(".zip") else place, gate)
            counts[outcome] += 1
            if given.keep and outcome.startswith(("crashed", "hung")):
                given.keep.mkdir(parents=True, exist_ok=True)
                (given.keep / f"{number}-{name}").write_bytes(content)
            (place / name).unlink()
            place.rmdir()
        counts["executed"] = int(canary.exists())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**counts, "files": given.files, "seconds": time.perf_counter() - begun, "peak_MiB": peak}))
    sys.exit(any(key.startswith(("crashed", "hung")) for key in counts) or counts["executed"] > 0)


if __name__ == "__main__":
    main()
