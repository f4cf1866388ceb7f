"""What lies in a folder or a zip of uploads; nothing is unpacked to the disk, and no link is followed."""

import io
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from oneshot_fl.config.record import EXPORT, EXPORTED
from oneshot_fl.disk import reason
from oneshot_fl.errors import OneshotError, printable
from oneshot_fl.models.model_file import LARGEST, ModelFile, parse_model, read_model

SUFFIX = ".safetensors"
PICKLED = "data.pkl"
"""A file in every zip that torch.save makes."""
BESIDE = frozenset({".json", ".txt", ".md", ".csv", ".html"})
"""Endings of files that may lie beside uploads and are not looked at."""
OF_EXPORTS = frozenset(PurePosixPath(name).suffix for name in EXPORTED.values())
"""The same of what `oneshot-fl export` writes of an upload, into a folder `export` beside it."""
MOST_FILES = 10_000
MOST_MEMBERS, AT_ONCE = 100_000, 32 * 10**6
"""Of a zip: everything that is in it, uploads or not; and bytes that are read of it at once."""
LARGEST_ZIP = 8 * 10**9
"""Bytes of a zip, and of everything that is read out of one."""
LONGEST_NAME = 160
"""Letters of a name in reports; of a longer path the middle is left out."""
OF_A_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
    MemoryError,
)
"""What Python raises over a member that is damaged, encrypted, packed in a way that it does not know, or that asks for
more memory than there is (an LZMA dictionary of 4 GB takes a few bytes)."""


@dataclass(frozen=True)
class Found:
    """One file that somebody uploaded."""

    name: str
    """Its path below the folder or in the zip, made printable, and numbered where another is printed alike: it is what
    the server tells uploads apart by."""
    read: Callable[[], ModelFile]
    """The file, or an `OneshotError` that says what is wrong with it."""


Entry = tuple[str, Callable[[str], ModelFile]]
"""A path below the folder or in the zip as its sender wrote it, and what reads the file under the name it is given."""


def check_name(out: Path) -> None:
    """Whether a file of this name will be taken for an upload.

    Raises:
        OneshotError: it ends otherwise.
    """
    if not _is_upload(out.name):
        raise OneshotError(f"{out}: must end in {SUFFIX}, by which uploads are known")


def found_in(uploads: Path, *, largest: int = LARGEST) -> list[Found]:
    """Every file of a folder or zip that is, or should be, an upload, sorted by name.

    Args:
        uploads: the folder, or the zip.
        largest: bytes that one upload may have.

    Raises:
        OneshotError: there is no such folder or zip, it cannot be read, or it holds no file or too many.
    """
    if uploads.is_dir():
        entries = list(_in_folder(uploads, largest))
    elif uploads.is_file():
        entries = list(_in_zip(uploads, largest))
    else:
        raise OneshotError(f"{uploads}: is neither a folder nor a zip of uploads")
    if not entries:
        raise OneshotError(f"{uploads}: holds no upload; each client's is one {SUFFIX} file (oneshot-fl pack makes it)")
    if len(entries) > MOST_FILES:
        raise OneshotError(f"{uploads}: holds {len(entries):,} files, more than {MOST_FILES:,}")
    entries.sort(key=lambda entry: entry[0])
    names = _names([path for path, _ in entries])
    found = [Found(name, partial(read, name)) for name, (_, read) in zip(names, entries, strict=True)]
    return sorted(found, key=lambda each: each.name)


def _names(paths: Sequence[str]) -> list[str]:
    """A name for each path, no two alike; a path that is printable as it is keeps it, whatever comes before it."""
    own = {path for path in paths if path == _short(path)}
    taken, numbers, names = set(own), defaultdict[str, Iterator[int]](lambda: count(2)), list[str]()
    for path in paths:
        name = plain = _short(path)
        if name in taken and path not in own:
            name = next(each for number in numbers[plain] if (each := f"{plain} ({number})") not in taken)
        own.discard(path)  # whoever repeats it in a zip is numbered
        taken.add(name)
        names.append(name)
    return names


def _in_folder(folder: Path, largest: int) -> Iterator[Entry]:
    unreadable: list[OSError] = []
    for parent, below, names in os.walk(folder, onerror=unreadable.append):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for path in (Path(parent, name).relative_to(folder) for name in names):
            if _counts(PurePosixPath(path)):
                yield str(path), partial(_of_folder, folder / path, largest)
        for path in (Path(parent, name) for name in below):
            if path.is_symlink():
                yield str(path.relative_to(folder)), _linked
    for error in unreadable:
        yield os.path.relpath(error.filename, folder), partial(_unreadable, error)


def _unreadable(error: OSError, name: str) -> ModelFile:
    """A folder that may hold uploads."""
    raise OneshotError(f"{name}: cannot be read ({reason(error)})") from error


def _linked(name: str) -> ModelFile:
    """A folder elsewhere, whose files nobody has put among the uploads."""
    raise OneshotError(f"{name}: is a link to a folder, and no link is followed; put the folder itself there")


def _of_folder(path: Path, largest: int, name: str) -> ModelFile:
    _check_suffix(path.name, name)
    return read_model(path, source=name, largest=largest)


def _in_zip(path: Path, largest: int) -> Iterator[Entry]:
    if path.stat().st_size > LARGEST_ZIP:
        raise OneshotError(f"{path}: is larger than {LARGEST_ZIP:,} bytes")
    try:
        archive = zipfile.ZipFile(_ZipOnDisk(path))  # opened once for all members: its list may be long
    except OF_A_ZIP as error:
        raise OneshotError(f"{path}: is no zip of uploads ({_why(error)})") from error
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise OneshotError(f"{path}: holds {len(members):,} files and folders, more than {MOST_MEMBERS:,}")
    names = [PurePosixPath(member.filename) for member in members]
    if any(name.name == PICKLED for name in names) and not any(_is_upload(name.name) for name in names):
        raise OneshotError(
            f"{path}: is a model as torch.save writes it and no zip of uploads; oneshot-fl pack makes an upload of it"
        )
    left = [LARGEST_ZIP]
    for member, name in zip(members, names, strict=True):
        if not member.filename.endswith("/") and _counts_in_zip(name):
            yield member.filename, partial(_of_zip, archive, member, largest, left)


class _ZipOnDisk(io.FileIO):
    """A zip's bytes, a few at a time: `zipfile` would take its list of members into memory whatever the length.

    It is open for as long as anybody may read out of it.
    """

    def read(self, size: int | None = -1, /) -> bytes | Any:
        """At most `AT_ONCE` bytes, of which a list that is longer is cut off, and so refused by `zipfile`."""
        return super().read(AT_ONCE if size is None or size < 0 else min(size, AT_ONCE))

    def __del__(self) -> None:
        self.close()


def _of_zip(archive: zipfile.ZipFile, member: zipfile.ZipInfo, largest: int, left: list[int], name: str) -> ModelFile:
    """One member, read into memory; `left` is what may still be read out of the whole zip."""
    _check_place(member, name)
    _check_suffix(member.filename, name)
    limit = min(largest, left[0])
    if member.file_size > limit:
        raise OneshotError(f"{name}: would be larger than {limit:,} bytes")
    left[0] -= member.file_size  # also where it turns out to be damaged, which may be at its end
    try:
        with archive.open(member) as file:
            content = file.read(limit + 1)
    except OF_A_ZIP as error:
        raise OneshotError(f"{name}: cannot be read out of the zip ({_why(error)})") from error
    if len(content) > limit:
        raise OneshotError(f"{name}: is larger than {limit:,} bytes")
    return parse_model(content, name)


def _check_place(member: zipfile.ZipInfo, name: str) -> None:
    """Nothing is unpacked, so a path cannot do harm; but an honest zip has no such paths and no links."""
    place = PureWindowsPath(member.filename)  # it knows what leads out anywhere
    if place.anchor or ".." in place.parts:
        raise OneshotError(f"{name}: its path leads out of the zip")
    if unlike := next((letter for letter in "\\:" if letter in member.filename), None):
        raise OneshotError(
            f"{name}: its path in the zip has a {unlike}, which not every system takes for a letter of a name; rename "
            "it, or make the zip anew with a program that writes / between folders"
        )
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise OneshotError(f"{name}: is a link or device, not a file")


def _check_suffix(path: str, name: str) -> None:
    if not _is_upload(path):
        raise OneshotError(f"{name}: is no {SUFFIX} file, and nothing else is read (no pickle, weights_only or not)")


def _is_upload(path: str) -> bool:
    """By its ending, in whatever letters: some file systems, and those who send from them, make all of them large."""
    return path.lower().endswith(SUFFIX)


def _counts(path: PurePosixPath) -> bool:
    """Whether a file is, or should be, an upload."""
    ending = path.suffix.lower()
    exported = EXPORT in path.parent.parts and ending in OF_EXPORTS
    return not path.name.startswith(".") and ending not in BESIDE and not exported


def _counts_in_zip(path: PurePosixPath) -> bool:
    """Likewise; what lies in a hidden folder does not. A path that leads upwards is hidden by nothing, and refused."""
    return _counts(path) and not any(each.startswith(".") and each != ".." for each in path.parent.parts)


def _short(path: str) -> str:
    """On one line that is not too long, with its ending."""
    name = printable(" ".join(path.split()))
    half = (LONGEST_NAME - 3) // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}...{name[-half:]}"


def _why(error: Exception) -> str:
    return reason(error)[:160] or type(error).__name__
