"""How the benchmarks' commands end where whoever called them made a mistake: as the program itself does."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oneshot_fl.errors import OneshotError
from oneshot_fl.process import say


@contextmanager
def one_line() -> Iterator[None]:
    """An `OneshotError` inside the block is one line on standard error and exit code 2."""
    try:
        yield
    except OneshotError as error:
        say(str(error))
        sys.exit(2)


def require_folder(option: str, file: Path) -> None:
    """Whether a file can be written where an option says, before hours are spent on what it is for.

    Raises:
        OneshotError: its folder is not there.
    """
    if not file.parent.is_dir():
        raise OneshotError(f"{option} {file}: there is no folder {file.parent}; make it first, or choose another")
