"""Where a store remembers runs that are done: `<store>/runs/<key>.<arithmetic>.json` names the folder of one."""

import json
from pathlib import Path

from oneshot_fl.disk import write_atomically

RUNS = "runs"
"""The folder of it in a store, beside those of the phases."""


def remember_run(file: Path, folder: Path) -> None:
    """Write the file that names the folder of a run.

    Raises:
        OneshotError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps({"folder": str(folder.absolute())}))


def remembered_run(file: Path) -> Path:
    """The folder that such a file names.

    Raises:
        ValueError: it names none.
        OSError: it is absent or cannot be read.
    """
    try:
        return Path(json.loads(file.read_text())["folder"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{file.name} names no folder") from error
