"""One file for many runs, to be read in the place of their folders."""

import json
from collections.abc import Iterable
from pathlib import Path

from oneshot_fl.disk import make_folder, require_own, write_atomically
from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.alike import identity
from oneshot_fl.reporting.tables.run import Run
from oneshot_fl.reporting.tables.runs import LEFT, OURS, UNKNOWN, WRITTEN, every_run, same_data_alike, slim


def collect(runs: Iterable[Run], file: Path) -> None:
    """One file with a line for every finished run: its summary, of the rounds only the accuracies.

    `written` is when the summary was, in seconds since 1970, so that of two files the newer result counts; `studies`
    names those of its copies in other studies, where there are any.

    Raises:
        OneshotError: it cannot be written, something else lies there, or runs would be lost that are collected there.
    """
    done = [run for run in runs if run.summary]
    make_folder(file.parent)
    require_own(file, lambda text: file.name not in LEFT and _is_collected(text), "file that --collect wrote")
    _require_none_lost(done, file)
    lines = [json.dumps(slim(run.summary) | _written(run) | _other_studies(run)) for run in done if run.summary]
    write_atomically(file, "".join(f"{line}\n" for line in lines))


def _is_collected(text: str) -> bool:
    try:
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return False
    return all(isinstance(record, dict) and record.keys() & OURS for record in records)


def _require_none_lost(done: list[Run], file: Path) -> None:
    """A file that is written anew may tell a run's newer result, and more runs, but none less."""
    there = every_run([file]) if file.is_file() and file.read_text().strip() else []
    every = [identity(run) for run in same_data_alike([*done, *there])]
    if lost := len(set(every[len(done) :]) - set(every[: len(done)])):
        raise OneshotError(
            f"{file}: holds {lost} runs that are not among these and would be lost; name it among what is read "
            f"(tables ... {file} --collect {file}), or choose another file"
        )


def _written(run: Run) -> dict[str, float]:
    return {} if run.written is None else {WRITTEN: run.written}


def _other_studies(run: Run) -> dict[str, list[str]]:
    others = sorted(run.studies - {run.study, UNKNOWN})
    return {"studies": others} if others else {}
