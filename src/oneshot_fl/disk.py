"""Files that are whole or not there, also after a crash, and failures of the disk as one plain line."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from safetensors import SafetensorError

from oneshot_fl.errors import OneshotError


@contextmanager
def writing(where: str) -> Iterator[None]:
    """Any failure of the disk inside the block as one line that begins with `where`.

    Raises:
        OneshotError: no room, no permission, or something else lies in the way.
    """
    try:
        yield
    except (OSError, SafetensorError, NotImplementedError) as error:
        raise OneshotError(
            f"{where}: cannot be written ({reason(error)}); make room or give permission, or choose another folder"
        ) from error


def make_folder(folder: Path) -> None:
    """Make a folder, and those it lies in, where it is not there.

    Raises:
        OneshotError: it cannot be made.
    """
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)


def reason(error: Exception) -> str:
    """Why something failed, in one line without paths."""
    return getattr(error, "strerror", None) or " ".join(str(error).split())


def folders_below(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder from `root` down with the names of what else lies in it, in order, also behind links.

    A link that leads back up is left.
    """
    above: dict[str, frozenset[str]] = {}
    for folder, below, names in os.walk(root, followlinks=True):
        real, before = os.path.realpath(folder), above.get(os.path.dirname(folder), frozenset())
        if real in before:
            below.clear()
            continue
        above[folder] = before | {real}
        below.sort()
        yield Path(folder), sorted(names)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part.

    Raises:
        OneshotError: the disk is full, or the folder cannot be written.
    """
    with replacing(path) as new, writing(str(path)):
        write_file(new, content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside `path` to write a file in, which takes the place of `path` where the block ends without an error.

    Raises:
        OneshotError: it cannot.
    """
    # Another process may write the same file; and whoever is killed leaves nothing that could be taken for one.
    new = path.with_name(f".{uuid4().hex[:12]}.new")
    try:
        yield new
        with writing(str(path)):
            os.replace(new, path)
            sync(path.parent)
    finally:
        with suppress(OSError):  # where it cannot be removed, what kept it from being written is told
            new.unlink()


def require_own(file: Path, is_own: Callable[[str], bool], what: str, instead: str = "another file") -> None:
    """Whether nothing lies where a command is to write, or what it wrote there before.

    Args:
        file: where.
        is_own: whether a text is of the kind that the command writes.
        what: that is.
        instead: what to choose where it is not.

    Raises:
        OneshotError: something else lies there, or what cannot be read.
    """
    try:
        text = file.read_text(errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise OneshotError(f"{file}: cannot be read ({reason(error)}); choose {instead}") from error
    if not is_own(text):
        raise OneshotError(f"{file}: is no {what} and is not overwritten; choose {instead}")


def require_regular(path: Path) -> None:
    """Whether reading what lies there, if anything does, cannot hang, as it would of a named pipe.

    Raises:
        OneshotError: it is no regular file.
    """
    if path.exists() and not path.is_file():
        raise OneshotError(f"{path}: is no regular file")


def sha256_of(path: Path) -> str:
    """Of a file's contents, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    path.write_bytes(content)
    sync(path)


def sync(path: Path) -> None:
    """Wait until a file, or which files a folder has, is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def remove(path: Path) -> None:
    """Remove whatever lies there: a folder, a file, or a link, whose target stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part.

    Bytes of a file's name that are no UTF-8 are written as escapes (`\\udce9`).

    Raises:
        OneshotError: the disk is full, or the folder cannot be written.
    """
    replace_file(path, text.encode(errors="backslashreplace"))
