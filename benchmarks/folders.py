"""Folders that results go into."""

from pathlib import Path

from oneshot_fl.errors import OneshotError


def require_folder(option: str, file: Path) -> None:
    """Whether a file can be written where an option says, before hours are spent on what it is for.

    Raises:
        OneshotError: its folder is not there.
    """
    if not file.parent.is_dir():
        raise OneshotError(f"{option} {file}: there is no folder {file.parent}; make it first, or choose another")
