"""The runs that have no result: why, where they lie, and the command that runs each again."""

import shlex
from collections.abc import Iterable

from oneshot_fl.config.compose import placed
from oneshot_fl.reporting.tables.format import Sheet
from oneshot_fl.reporting.tables.run import Run
from oneshot_fl.reporting.tables.runs import UNKNOWN


def not_done_sheet(runs: Iterable[Run]) -> Sheet:
    """A row for every run that failed, was interrupted, or never ended and may still be on."""
    missing = [run for run in runs if run.status != "done"]
    header = ["run", "status", "reason", "folder", "command"]
    rows = [[_name(run), run.status, run.error, str(run.folder or ""), command(run)] for run in missing]
    records = [dict(zip(header, row, strict=True)) for row in rows]
    notes = ["An unfinished run is still on, or was killed. The command takes up what is in the store."] if rows else []
    return Sheet("Runs without a result" if rows else "All runs are done", header, rows, notes, records)


def command(run: Run) -> str:
    """What made it or, without a result, runs it again in its folder, for a shell; empty if its record is silent."""
    if not run.complete:
        return ""
    again = [] if run.status == "done" or run.folder is None else [placed("hydra.run.dir", run.folder)]
    return shlex.join(["python", "-m", "oneshot_fl", *run.searched, *run.overrides, *again])


def _name(run: Run) -> str:
    return "not known" if run.method == UNKNOWN else f"{run.label}, {run.data}, seed {run.seed}"
