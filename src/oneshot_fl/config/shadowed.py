"""Files of one's own that nothing reads: Hydra takes a choice from the first folder that has it, and ours is first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from filecmp import cmp
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from oneshot_fl.errors import OneshotError


def check_read(hydra: Any) -> None:
    """Every file that somebody may have meant by the choices of a run is the one that is read, or is like it.

    Args:
        hydra: that part of the whole configuration of the run.

    Raises:
        OneshotError: another file of that name says something else.
    """
    folders = folders_of(hydra)
    for group, name in [("", hydra.job.config_name), *_chosen(hydra)]:
        _check_with_parts(group, name, folders)


def _chosen(hydra: Any) -> Iterator[tuple[str, str | None]]:
    """Every group with what was chosen of it; Hydra does not count what stands in a list (`logger=[csv,mine]`)."""
    for key, name in hydra.runtime.choices.items():
        yield key.partition("@")[0], name
    for override in OverridesParser.create().parse_overrides(list(hydra.overrides.task)):
        names = override.value()
        yield from ((override.key_or_group, str(name)) for name in (names if isinstance(names, list) else ()))


def _check_with_parts(group: str, name: str | None, folders: Sequence[Path]) -> None:
    """One choice, and what the file that is read takes from others in turn."""
    read = check_one_file(group, name, folders)
    if read and len(folders) > 1:
        for part in _parts(read, group):
            _check_with_parts(*part, folders)


def _parts(file: Path, group: str) -> Iterator[tuple[str, str]]:
    """Group and name of every file that the defaults of one take in whole, or in a list: Hydra counts none of them."""
    defaults = OmegaConf.select(OmegaConf.load(file), "defaults")
    entries: Any = OmegaConf.to_container(defaults) if defaults else []
    for entry in entries:
        if isinstance(entry, str) and entry != "_self_":
            yield _absolute(entry, group)
        for key, names in entry.items() if isinstance(entry, Mapping) else ():
            inside = "/".join(part for part in _absolute(key.split()[-1], group) if part)
            yield from ((inside, str(name)) for name in (names if isinstance(names, list) else ()))


def _absolute(path: str, group: str) -> tuple[str, str]:
    """Group and name of what a defaults list calls `path`, from the root or from the group of its file."""
    named = path.partition("@")[0]
    whole = named if named.startswith("/") else f"{group}/{named}"
    folder, _, name = whole.strip("/").rpartition("/")
    return folder, name


def folders_of(hydra: Any) -> list[Path]:
    """The folders that configuration is read from, the first first; a job may be in a folder of its own by now."""
    return [Path(place_of(hydra, source)) for source in hydra.runtime.config_sources if source.schema == "file"]


def place_of(hydra: Any, source: Any) -> str:
    """Where one source of configuration lies, a folder named so that it is found from every other."""
    return str(Path(hydra.runtime.cwd, source.path) if source.schema == "file" else source.path)


def check_one_file(group: str, name: str | None, folders: Iterable[str | Path]) -> Path | None:
    """The file of one choice of a group (`""`: the primary one), the only one of its name, or all say the same.

    Returns:
        The one that is read; None where no folder has any.

    Raises:
        OneshotError: they do not.
    """
    files = [file for folder in folders if (file := Path(folder, group, f"{name}.yaml")).is_file()]
    for file in files[1:]:
        if not cmp(file, files[0], shallow=False):
            raise OneshotError(
                f"{f'{group}={name}' if group else f'{name}.yaml'}: {file} is not read, as {files[0]} has that name "
                "and comes first; give it another name"
            )
    return files[0] if files else None
