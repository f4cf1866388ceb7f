"""The trace that a run leaves from its first moment, also where it fails or is stopped: `run.json`, `error.txt`."""

import json
import os
import socket
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from oneshot_fl.config.record import TRACE
from oneshot_fl.disk import make_folder, write_atomically
from oneshot_fl.errors import OneshotError, named_line
from oneshot_fl.process import Interrupted, again_and_again, interruption

ERROR = "error.txt"
ALIVE = 15.0
"""Seconds after which a running job renews the time of change of its trace, for those who look from other machines."""


class Trace:
    """`run.json` in a run's folder: what the run is, where it runs, and how it stands."""

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        self.folder, self.record, self._began = folder, dict(record), time.monotonic()
        self.where: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "begun": round(time.time(), 3)}

    def describe(self, record: Mapping[str, Any]) -> None:
        """More is known of the run now."""
        self.record = dict(record)
        self.write("running")

    def on(self, device: str) -> None:
        """What it computes on is known now."""
        self.where["device"] = device
        self.write("running")

    def write(self, status: str, **more: Any) -> None:
        """The record and how the run stands: running, done, failed, interrupted."""
        make_folder(self.folder)
        told = {**self.record, **self.where, "status": status, **more}
        write_atomically(self.folder / TRACE, json.dumps(told, indent=1))

    def end(self, status: str, **more: str) -> None:
        """The last word on it, with the seconds that it took, whatever was done to the clock meanwhile."""
        self.write(status, seconds=round(time.monotonic() - self._began, 3), **more)

    def keep_error(self) -> None:
        """The traceback of the exception that is being handled."""
        write_atomically(self.folder / ERROR, traceback.format_exc())


@contextmanager
def traced(folder: Path, record: Mapping[str, Any]) -> Iterator[Trace]:
    """Keep `run.json` in `folder` while a run is on; one that is killed leaves it at `running`, and growing old.

    Args:
        record: what is known of the run before its configuration is checked.
    """
    trace = Trace(folder, record)
    trace.write("running")
    (folder / ERROR).unlink(missing_ok=True)
    try:
        with again_and_again(partial(_renew, folder / TRACE), ALIVE):
            yield trace
    except SystemExit as end:  # of whoever runs the job, as where it goes back into a queue
        trace.end("interrupted", error=f"stopped (exit code {end.code}); the same command resumes")
        raise
    except KeyboardInterrupt:  # of a program that called `oneshot_fl.run`
        trace.end("interrupted", error="stopped by Ctrl-C; the same call resumes")
        raise
    except (Interrupted, Exception) as error:
        interrupted = error if isinstance(error, Interrupted) else interruption()
        if interrupted is not None:
            trace.end("interrupted", error=str(interrupted))
            raise
        trace.end("failed", error=_reason(error))
        trace.keep_error()
        raise
    trace.end("done")


def _reason(error: BaseException) -> str:
    """Why a run failed, on one line: a message of ours says it all, any other may be empty without its kind."""
    return " ".join(str(error).split()) if isinstance(error, OneshotError) else named_line(error)


def _renew(file: Path) -> None:
    """Set a file's time of change to now; a folder may be removed under a run, and a disk may fail for a moment."""
    with suppress(OSError):
        os.utime(file)
