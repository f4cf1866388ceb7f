"""Image files as tensors: found in class folders, decoded once, kept in the store."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from unicodedata import normalize

import torch
from torch import Tensor

from oneshot_fl.artifacts import Artifact
from oneshot_fl.code import digest
from oneshot_fl.data.class_names import class_name, flaw_of_name
from oneshot_fl.data.decode import DATA_SET, Decoding, Origin, decode
from oneshot_fl.data.decode_all import decode_all
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import shown
from oneshot_fl.process import say
from oneshot_fl.store import open_store
from oneshot_fl.values import SIDE

Files = list[tuple[Path, int]]
"""Image files and their labels."""
Tree = dict[str, list[Path]]
"""The image files of every folder of a folder, by its name."""
PARTS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})
"""Folders that hold a part of a data set, in small letters."""
MOST_NAMED = 20
"""Classes that an error lists."""


@dataclass(frozen=True)
class Unusable:
    """What lies where images are looked for and cannot be read as one, or as a folder of them."""

    path: Path
    what: str
    """Follows the path in a sentence."""
    remedy: str
    """What whoever has the files should do."""

    def error(self, origin: Origin) -> OneshotError:
        """Of a data set, which is read whole or not at all."""
        return OneshotError(f"{origin.setting}: {self.path} {self.what}: {self.remedy}")


@cache
def suffixes() -> tuple[str, ...]:
    """How the names of image files end: torchvision's list, and what Pillow reads besides without any other program."""
    from torchvision.datasets.folder import IMG_EXTENSIONS

    return (*IMG_EXTENSIONS, ".gif", ".jfif", ".jp2", ".avif")


def subfolders(folder: Path, origin: Origin = DATA_SET) -> list[str]:
    """The sorted names of the folders in `folder` that are not hidden; none where it does not exist."""
    if not folder.is_dir():
        return []
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not _is_hidden(entry.name))
    except OSError as error:
        raise _unreadable(error).error(origin) from error


def images_in(folder: Path, origin: Origin = DATA_SET) -> list[Path]:
    """The image files in a folder and below it, sorted folder by folder as torchvision's `ImageFolder` finds them.

    What is hidden is left out (`.ipynb_checkpoints`, `._name.png`); a folder that does not exist has none.

    Raises:
        OneshotError: a folder cannot be read, links lead to one of them twice, or what is named like an image is no
            regular file (a pipe, a device, a link to nothing).
    """
    found = list[Path]()
    for each in images_and_unusable_in(folder):
        if isinstance(each, Unusable):
            raise each.error(origin)
        found.append(each)
    return found


def images_and_unusable_in(folder: Path) -> list[Path | Unusable]:
    """The same for whoever can do without some: in the place of what cannot be used is what is wrong with it."""
    found: list[Path | Unusable] = []
    if not folder.exists():
        return found
    walk = _below(folder, onerror=lambda error: found.append(_unreadable(error)))
    for parent, files in walk:
        if files is None:
            what = f"is a link to {os.path.realpath(parent)}, whose images are found already"
            found.append(Unusable(parent, what, "remove the link"))
        else:
            found += [_regular(path) for path in files if _is_image(path.name)]
    return found


def _below(
    folder: Path, *, onerror: Callable[[OSError], None] | None = None
) -> Iterator[tuple[Path, list[Path] | None]]:
    """A folder and those below it, sorted, each with its files; neither has any that are hidden.

    Links are followed. Where one leads to a folder that was there before, which would go on for ever, stands None.
    """
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=onerror, followlinks=True):
        again = (real := os.path.realpath(parent)) in seen
        seen.add(real)
        folders[:] = [] if again else _in_order(folders)
        files = [Path(parent, name) for name in _in_order(names)]
        yield Path(parent), None if again else files


def _in_order(names: Iterable[str]) -> list[str]:
    """Those that are not hidden, sorted alike however a disk composes their letters."""
    return sorted((name for name in names if not _is_hidden(name)), key=partial(normalize, "NFC"))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_image(name: str) -> bool:
    return name.lower().endswith(suffixes())


def _regular(path: Path) -> Path | Unusable:
    try:
        regular = path.is_file()
    except OSError as error:
        return _unreadable(error)
    return path if regular else Unusable(path, "is named like an image and is no regular file", "remove or replace it")


def _unreadable(error: OSError) -> Unusable:
    return Unusable(Path(str(error.filename)), f"cannot be read ({error.strerror})", "change its permissions")


def folders_by_name(folder: Path, what: str, origin: Origin = DATA_SET) -> dict[str, Path]:
    """The folders in `folder`, sorted by their names as model files have them: disks may spell them otherwise.

    Raises:
        OneshotError: two are of one `what`, a class or a domain.
    """
    found: dict[str, Path] = {}
    for name in subfolders(folder, origin):
        if class_name(name) in found:
            raise OneshotError(
                f"{origin.setting}: {folder} has two folders of the {what} {class_name(name)}, whose names differ only "
                "in white space around them or in Unicode form; make one folder of them"
            )
        found[class_name(name)] = folder / name
    return dict(sorted(found.items()))


def tree_by_class(folder: Path, origin: Origin = DATA_SET) -> Tree:
    """The images of every class folder, by the class.

    Raises:
        OneshotError: two folders are of one class, one with images has a name that no model file can hold, or images
            cannot be read.
    """
    places = folders_by_name(folder, "class", origin)
    found = {name: images_in(place, origin) for name, place in places.items()}
    for name, place in places.items():
        if found[name] and (wanted := flaw_of_name(place.name)):
            raise OneshotError(
                f"{origin.setting}: the class folder {shown(ascii(place.name))} in {folder} must have another name, "
                f"{wanted}"
            )
    return found


def check_layout(folder: Path, found: Tree, origin: Origin) -> None:
    """Whether images lie in folders of classes, where a folder was given for itself and not as a part of a data set.

    Raises:
        OneshotError: they lie in `folder`, as those of one class do, or in folders of classes in those of parts.
    """
    if not any(found.values()) and images_in(folder, origin):
        above = Path(os.path.abspath(folder)).parent
        raise OneshotError(
            f"{origin.setting}: {folder} holds images and no folder of a class; give the folder above it, {above}, if "
            "that has a folder of images for each class"
        )
    if parts := _parts(folder, found):
        places = " or ".join(str(folder / name) for name in parts)
        raise OneshotError(
            f"{origin.setting}: {folder} holds parts of a data set and no folder of a class; give the folder of one "
            f"part, {places}"
        )


def _parts(folder: Path, found: Tree) -> list[str]:
    """The folders with images where all are named like parts of a data set and have them in folders of their own."""
    filled = {name: paths for name, paths in found.items() if paths}
    named = all(name.lower() in PARTS for name in filled)
    deeper = all(path.parent.parent != folder for paths in filled.values() for path in paths)
    return list(filled) if named and deeper else []


def labelled(
    folder: Path, found: Tree, classes: list[str], *, complete: bool = True, origin: Origin = DATA_SET
) -> Files:
    """The images found in `folder` with their labels, which follow the order of `classes`.

    Raises:
        OneshotError: there is none, a folder with images is not among the classes, or a class has a folder without
            images or, where all of them must be there (`complete`), no images.
    """
    key = origin.setting
    if unknown := [name for name, paths in found.items() if paths and name not in classes]:
        known = ", ".join(classes[:MOST_NAMED]) + ", ..." * (len(classes) > MOST_NAMED)
        raise OneshotError(f"{key}: {folder} has classes that are not among {known}: {', '.join(unknown)}")
    files = [(path, label) for label, name in enumerate(classes) for path in found.get(name, [])]
    endings = ", ".join(suffixes())
    if not files:
        raise OneshotError(f"{key}: no image file in {folder}/<class>/ ({endings})")
    if empty := [name for name in classes if not found.get(name) and (complete or name in found)]:
        instead = "class everywhere" if complete else "folder"
        raise OneshotError(
            f"{key}: {folder} has no image file of {', '.join(empty)} ({endings}): add some, or remove the {instead}"
        )
    return files


def unread(folders: Iterable[Path], files: Mapping[str, Files], origin: Origin = DATA_SET) -> tuple[str, ...]:
    """A line on files in `folders` that are not among the images in `files`; none where there is no such file."""
    used = {path for found in files.values() for path, _ in found}
    left = [path for folder in folders for path in _files_below(folder) if path not in used]
    return _told_of_unread(origin.setting, left, "they lie in no class folder, or ")


def misnamed_in(folder: Path) -> tuple[str, ...]:
    """The same of a folder in which images lie anywhere: a line on files that are not named like images."""
    return _told_of_unread(str(folder), [path for path in _files_below(folder) if not _is_image(path.name)])


def _files_below(folder: Path) -> Iterator[Path]:
    return (path for _, there in _below(folder) for path in there or ())


def _told_of_unread(where: str, left: list[Path], why: str = "") -> tuple[str, ...]:
    if not left:
        return ()
    why += f"their names do not end in {', '.join(suffixes())}"
    return (f"{where}: files that are not read as images: {len(left)}, for instance {left[0]}; {why}",)


def read_images(
    files: Mapping[str, Files], *, cache: str, how: Decoding, origin: Origin = DATA_SET
) -> dict[str, tuple[Tensor, Tensor]]:
    """Images uint8 `[n, C, size, size]` and labels `[n]` of every named part of `files`.

    With `how.size=None` all images must already be square and of one size, which must be one that could be set; with a
    number they are resized to it. They are kept in the store `cache` under the contents of all files and the code that
    decodes them.

    Raises:
        OneshotError: a file is no image or is written meanwhile, sizes differ or are too small or too large, or `cache`
            cannot be written.
    """
    paths = {part: [path for path, _ in found] for part, found in files.items()}
    if how.size is None:
        _check_side(_first(paths), how, origin)
    digests = {part: [_digest(path, origin) for path in found] for part, found in paths.items()}
    contents = {part: hashlib.sha256(b"".join(each)).hexdigest() for part, each in digests.items()}
    inputs = {**asdict(how), "files": contents, "code": digest([decode_all.__module__])}
    store = open_store(Path(cache), {})
    artifact = store.get_or_make("images", inputs, lambda _: _decoded(paths, digests, how, origin), waiting=say)
    return {
        part: (artifact.tensors[f"{part}_images"], torch.tensor([label for _, label in found]))
        for part, found in files.items()
    }


def _digest(path: Path, origin: Origin) -> bytes:
    """The SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise _unreadable(error).error(origin) from error


def _first(paths: Mapping[str, list[Path]]) -> Path:
    return next(path for part in paths.values() for path in part)


def _check_side(path: Path, how: Decoding, origin: Origin) -> None:
    side = decode(path, how, origin).shape[1]
    if not SIDE.holds(side):
        raise OneshotError(
            f"data.size=null: {path} is {side} pixels high, and a side must be {SIDE.says}: set data.size to resize "
            "all images"
        )


def _decoded(
    paths: Mapping[str, list[Path]], digests: Mapping[str, list[bytes]], how: Decoding, origin: Origin
) -> Artifact:
    try:
        decoded = decode_all(paths, digests, how, origin)
    except OSError as error:
        raise _unreadable(error).error(origin) from error
    return Artifact({f"{part}_images": torch.from_numpy(images) for part, images in decoded.items()}, facts={})
