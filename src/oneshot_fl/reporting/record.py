"""The trace that a run leaves from its first moment, also where it fails or is stopped: `run.json`, `error.txt`."""

import json
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oneshot_fl.config.record import TRACE
from oneshot_fl.disk import write_atomically
from oneshot_fl.process import Interrupted, interruption

ERROR = "error.txt"


class Trace:
    """`run.json` in a run's folder: what the run is, and how it stands."""

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        self.folder, self.record = folder, dict(record)

    def describe(self, record: Mapping[str, Any]) -> None:
        """More is known of the run now."""
        self.record = dict(record)
        self.write("running")

    def write(self, status: str, **more: str) -> None:
        """The record and how the run stands: running, done, failed, interrupted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / TRACE, json.dumps({**self.record, "status": status, **more}, indent=1))

    def keep_error(self) -> None:
        """The traceback of the exception that is being handled."""
        write_atomically(self.folder / ERROR, traceback.format_exc())


@contextmanager
def traced(folder: Path, record: Mapping[str, Any]) -> Iterator[Trace]:
    """Keep `run.json` in `folder` while a run is on; one that is killed leaves it at `running`.

    Args:
        record: what is known of the run before its configuration is checked.
    """
    trace = Trace(folder, record)
    trace.write("running")
    (folder / ERROR).unlink(missing_ok=True)
    try:
        yield trace
    except (Interrupted, Exception) as error:
        interrupted = error if isinstance(error, Interrupted) else interruption()
        if interrupted is not None:
            trace.write("interrupted", error=str(interrupted))
            raise
        trace.write("failed", error=" ".join(str(error).split()))
        trace.keep_error()
        raise
    trace.write("done")
