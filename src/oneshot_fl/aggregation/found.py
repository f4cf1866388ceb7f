"""What lies in a folder or a zip of uploads; nothing is unpacked to the disk, and no link is followed."""

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from oneshot_fl.disk import reason
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import shown
from oneshot_fl.models.model_file import LARGEST, ModelFile, parse_model, read_model

SUFFIX = ".safetensors"
BESIDE = frozenset({".json", ".txt", ".md", ".csv", ".html"})
"""Endings of files that may lie beside uploads and are not looked at."""
MOST_FILES = 10_000
LARGEST_ZIP = 8 * 10**9
"""Bytes of a zip, and of everything that is read out of one."""
OF_A_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)
"""What Python raises over a member that is damaged, encrypted, or packed in a way that it does not know."""


@dataclass(frozen=True)
class Found:
    """One file that somebody uploaded."""

    name: str
    """Below the folder or in the zip, printable."""
    read: Callable[[], ModelFile]
    """The file, or an `OneshotError` that says what is wrong with it."""


def found_in(uploads: Path, *, largest: int = LARGEST) -> list[Found]:
    """Every file of a folder or zip that is, or should be, an upload, sorted by name.

    Args:
        uploads: the folder, or the zip.
        largest: bytes that one upload may have.

    Raises:
        OneshotError: there is no such folder or zip, it cannot be read, or it holds no file or too many.
    """
    if uploads.is_dir():
        found = list(_in_folder(uploads, largest))
    elif uploads.is_file():
        found = list(_in_zip(uploads, largest))
    else:
        raise OneshotError(f"{uploads}: is neither a folder nor a zip of uploads")
    if not found:
        raise OneshotError(f"{uploads}: holds no upload; each client's is one {SUFFIX} file (oneshot-fl pack makes it)")
    if len(found) > MOST_FILES:
        raise OneshotError(f"{uploads}: holds {len(found):,} files, more than {MOST_FILES:,}")
    return sorted(found, key=lambda each: each.name)


def _in_folder(folder: Path, largest: int) -> Iterator[Found]:
    for parent, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for path in (Path(parent, name) for name in names if _counts(name)):
            name = _printable(str(path.relative_to(folder)))
            yield Found(name, partial(_of_folder, path, name, largest))


def _of_folder(path: Path, name: str, largest: int) -> ModelFile:
    _check_suffix(name)
    return read_model(path, source=name, largest=largest)


def _in_zip(path: Path, largest: int) -> Iterator[Found]:
    if path.stat().st_size > LARGEST_ZIP:
        raise OneshotError(f"{path}: is larger than {LARGEST_ZIP:,} bytes")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except OF_A_ZIP as error:
        raise OneshotError(f"{path}: is no zip of uploads ({_why(error)})") from error
    left = [LARGEST_ZIP]
    for number, member in enumerate(members):
        if not member.filename.endswith("/") and _counts(PurePosixPath(member.filename).name):
            name = _printable(member.filename)
            again = any(name == _printable(each.filename) for each in members[:number])
            yield Found(f"{name} ({number})" if again else name, partial(_of_zip, path, member, name, largest, left))


def _of_zip(path: Path, member: zipfile.ZipInfo, name: str, largest: int, left: list[int]) -> ModelFile:
    """One member, read into memory; `left` is what may still be read out of the whole zip."""
    _check_place(member)
    _check_suffix(name)
    limit = min(largest, left[0])
    if member.file_size > limit:
        raise OneshotError(f"{name}: would be larger than {limit:,} bytes")
    try:
        with closing(zipfile.ZipFile(path)) as archive, archive.open(member) as file:
            content = file.read(limit + 1)
    except OF_A_ZIP as error:
        raise OneshotError(f"{name}: cannot be read out of the zip ({_why(error)})") from error
    left[0] -= len(content)
    if len(content) > limit:
        raise OneshotError(f"{name}: is larger than {limit:,} bytes")
    return parse_model(content, name)


def _check_place(member: zipfile.ZipInfo) -> None:
    """Nothing is unpacked, so a path cannot do harm; but an honest zip has no such paths and no links."""
    parts = PurePosixPath(member.filename).parts
    if member.filename.startswith("/") or ".." in parts or "\\" in member.filename or ":" in member.filename:
        raise OneshotError(f"{_printable(member.filename)}: its path leads out of the zip")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise OneshotError(f"{_printable(member.filename)}: is a link or device, not a file")


def _check_suffix(name: str) -> None:
    if not name.endswith(SUFFIX):
        raise OneshotError(f"{name}: is no {SUFFIX} file, and nothing else is read (no pickle, weights_only or not)")


def _counts(name: str) -> bool:
    """Whether a file is, or should be, an upload."""
    return not name.startswith(".") and PurePosixPath(name).suffix.lower() not in BESIDE


def _printable(name: str) -> str:
    return shown(name).strip("'")


def _why(error: Exception) -> str:
    return reason(error)[:160]
