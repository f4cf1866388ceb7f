"""Files of one's own that nothing reads: Hydra takes a choice from the first folder that has it, and ours is first."""

from collections.abc import Iterable
from filecmp import cmp
from pathlib import Path
from typing import Any

from oneshot_fl.errors import OneshotError


def check_read(hydra: Any) -> None:
    """Every file that somebody may have meant by the choices of a run is the one that is read, or is like it.

    Args:
        hydra: that part of the whole configuration of the run.

    Raises:
        OneshotError: another file of that name says something else.
    """
    folders = folders_of(hydra)
    check_one_file("", hydra.job.config_name, folders)
    for key, name in hydra.runtime.choices.items():
        check_one_file(key.partition("@")[0], name, folders)


def folders_of(hydra: Any) -> list[Path]:
    """The folders that configuration is read from, the first first; a job may be in a folder of its own by now."""
    return [Path(place_of(hydra, source)) for source in hydra.runtime.config_sources if source.schema == "file"]


def place_of(hydra: Any, source: Any) -> str:
    """Where one source of configuration lies, a folder named so that it is found from every other."""
    return str(Path(hydra.runtime.cwd, source.path) if source.schema == "file" else source.path)


def check_one_file(group: str, name: str | None, folders: Iterable[str | Path]) -> None:
    """The file of one choice of a group (`""`: the primary one) is the only one of its name, or all say the same.

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
