"""Runs read from summaries, and from the traces of those that have none."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from oneshot_fl.config.record import SUMMARY, TRACE
from oneshot_fl.disk import folders_below, reason
from oneshot_fl.errors import OneshotError
from oneshot_fl.process import say
from oneshot_fl.reporting.tables.alike import distinct, for_all
from oneshot_fl.reporting.tables.chosen import across, runs_with
from oneshot_fl.reporting.tables.differences import Settings, canonical
from oneshot_fl.reporting.tables.run import DATA_FOUND, Run, Status

WRITTEN = "written"
"""The key of a collected line that tells its time."""
LEFT = (SUMMARY, TRACE)
"""What a run leaves in its folder."""
STATUSES: dict[str, Status] = {"failed": "failed", "interrupted": "interrupted"}


def read_runs(paths: Iterable[Path], *, where: Sequence[str] = (), pooled: Sequence[str] = ()) -> list[Run]:
    """`every_run`, of those alike one (`distinct`).

    Args:
        where: choices of `runs_with`.
        pooled: settings that are looked `across`.

    Raises:
        OneshotError: a folder is missing or holds none, a file is not what this version writes, or a choice or a
            setting is none.
    """
    return distinct(across(runs_with(every_run(paths), where), pooled))


def every_run(paths: Iterable[Path]) -> list[Run]:
    """Every run below folders and in files of `collect`, oldest first; one that was copied, as done before, once.

    Raises:
        OneshotError: a folder is missing or holds none, or a file is not what this version writes.
    """
    runs: dict[str, Run] = {}
    for number, run in enumerate(same_data_alike(_read_all(list(paths)))):
        key = _result(run.summary) if run.summary else str(number)
        copied = runs.pop(key, run)  # so that it is as new as its newest copy
        runs[key] = for_all(copied if run.folder is None else run, [copied, run])
    return list(runs.values())


def _result(summary: dict[str, Any]) -> str:
    """A text that no two runs leave, as it holds their times, and that a folder and a file of `collect` share."""
    return json.dumps(slim(summary), sort_keys=True)


def same_data_alike(runs: list[Run]) -> list[Run]:
    """The same runs with one `data.root` for all folders that held the same data.

    Where one name stood for other data at another time, `DATA_FOUND` counts. A run that never got to its data had
    those that its settings name, as far as another run tells.
    """
    newest = {_data_settings(run): content for run in runs if (content := _content(run))}
    roots: dict[str, str] = {}
    for run in runs:
        roots.setdefault(_content(run), run.setting("data.root"))
    versions: dict[str, list[str]] = {}
    alike = []
    for run in runs:
        content = _content(run) or newest.get(_data_settings(run), "")
        root = roots[content] if content else run.setting("data.root")
        placed = _with_data(run, {} if root is None else {"root": root})
        seen = versions.setdefault(_data_settings(placed), [])
        seen += [content] if content and content not in seen else []
        alike.append(_with_data(placed, {DATA_FOUND: seen.index(content) + 1} if content in seen[1:] else {}))
    return alike


def _content(run: Run) -> str:
    """A fingerprint of the data; earlier versions told it together with the settings that all methods share."""
    summary = run.summary or {}
    return str(summary.get("data_sha256") or summary.get("protocol") or "")


def _data_settings(run: Run) -> str:
    if run.complete:
        return canonical([run.data, [run.setting(key) for key in ("data", "development")]])
    known = {key: value for key, value in run.settings.items() if key != "method"}
    return canonical([run.data, [known, run.models]])


def _with_data(run: Run, more: Settings) -> Run:
    if not more:
        return run
    return replace(run, settings={**run.settings, "data": {**run.settings.get("data", {}), **more}})


def _read_all(paths: Sequence[Path]) -> list[Run]:
    """All runs, oldest first; aggregations are none, and a trace that a finished run left only adds its study."""
    parsed = [(_parsed(text, place), place, folder) for text, place, folder in _texts(paths)]
    ended = {folder: end for record, _, folder in parsed if folder is not None and (end := _ended(record))}
    parsed = [
        ({**found, WRITTEN: _time(found, place, folder, ended)}, place, folder) for found, place, folder in parsed
    ]
    parsed.sort(key=lambda read: read[0][WRITTEN] or 0.0)  # which leaves what is equally old in its order
    records = [record for record in parsed if not _passed_over(*record)]
    finished = {folder for record, _, folder in records if folder is not None and "server" in record}
    studies: dict[Path, frozenset[str]] = {}
    runs = []
    for record, place, folder in records:
        if folder in finished and record.get("status") == "done":
            studies[folder] = frozenset({record.get("study", UNKNOWN)})
        elif record.get("kind") != "aggregation":
            runs.append(_run(record, place, folder))
    if not runs:
        held = "aggregations only" if records else "no run"
        raise OneshotError(f"{', '.join(map(str, paths))}: holds {held}; {GIVE}")
    return [replace(run, studies=studies[run.folder]) if run.summary and run.folder in studies else run for run in runs]


def _ended(record: Mapping[str, Any]) -> float | None:
    """When a run with a result ended, as its trace tells; None of anything else."""
    begun, seconds = record.get("begun"), record.get("seconds")
    if record.get("status") != "done" or not isinstance(begun, float) or not isinstance(seconds, int | float):
        return None
    return round(begun + seconds, 3)


def _time(record: Mapping[str, Any], place: str, folder: Path | None, ended: Mapping[Path, float]) -> float | None:
    """When a record was written; None of a line of an earlier version's file, which is older than all others.

    A trace goes along where a folder is copied, while the copy's files are new.
    """
    if folder is not None:
        return ended.get(folder) or round(Path(place).stat().st_mtime, 3)
    told = record.get(WRITTEN)
    return float(told) if isinstance(told, int | float) else None


def _passed_over(record: dict[str, Any], place: str, folder: Path | None) -> bool:
    """Whether it is another program's file below a folder that was given, which is said."""
    theirs = folder is not None and not record.keys() & OURS
    if theirs:
        say(f"{place}: not of this program ({NEITHER}), passed over")
    return theirs


def _texts(paths: Iterable[Path]) -> list[tuple[str, str, Path | None]]:
    """Of each record its text, what errors call it and the folder that it lies in: files of `collect`, then folders."""
    files: list[tuple[str, str, Path | None]] = []
    places: dict[Path, Path] = {}  # by what they are behind links, so that none counts twice
    for path in paths:
        if path.is_file():
            files += [(text, place, None) for text, place in _lines(path)]
        elif found := [below / name for below, names in folders_below(path) for name in LEFT if name in names]:
            places |= {place.resolve(): place for place in found}
        else:
            raise OneshotError(f"{path}: no {SUMMARY} in or below it; {GIVE}")
    return files + [(_text(place), str(place), place.parent) for place in sorted(places.values(), key=str)]


def _lines(path: Path) -> list[tuple[str, str]]:
    """Of each record of a file its text and what errors call it: of a line, or of a file that is one over many."""
    text = _text(path)
    if len(text.splitlines()) > 1 and _is_json(text):
        return [(text, str(path))]
    lines = [(line, f"{path}, line {number}") for number, line in enumerate(text.splitlines(), 1)]
    return [(line, place) for line, place in lines if line.strip()]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark of its encoding
    except UnicodeDecodeError as error:
        raise OneshotError(f"{path}: not what this version writes (it is no text); {GIVE}") from error
    except OSError as error:
        raise OneshotError(f"{path}: cannot be read ({reason(error)})") from error


def slim(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary as it is collected: of the rounds only the accuracies."""
    return {**summary, "rounds": [_accuracy_only(row) for row in summary["rounds"]]}


def _accuracy_only(row: dict[str, Any]) -> dict[str, Any]:
    return {"round": row["round"], "accuracy": row["accuracy"]}


GIVE = "give the folder of a run or of a sweep, or a file that --collect wrote"
OURS = {"schema", "method", "kind", "status"}
"""Keys of which every summary and every trace has one."""
NEITHER = "neither schema nor method in it"
UNKNOWN = "?"
FACTS: dict[str, Any] = {
    **dict.fromkeys(("method", "data", "budget", "study"), UNKNOWN),
    "changed": {},
    "seed": 0,
    "models": {},
    "settings": {},
}
"""What tells runs apart, and what stands for it where a run failed before it was known."""


def _parsed(text: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise _foreign(place, repr(error)) from error
    if not isinstance(record, dict):
        raise _foreign(place, f"no object but {type(record).__name__}")
    return record


def _no_number(word: str) -> NoReturn:
    """Of NaN and infinities no table can be made, and a page with them is none that a browser reads."""
    raise ValueError(f"{word} stands where a number should")


def _foreign(place: str, why: str) -> OneshotError:
    damaged = why != NEITHER and place.endswith(LEFT)
    return OneshotError(f"{place}: not what this version writes ({why}); {'run it again' if damaged else GIVE}")


def _impossible(record: Mapping[str, Any]) -> Iterator[str]:
    """What no run writes among the figures that every table is made of."""
    if type(seed := record.get("seed", 0)) is not int:
        yield f"seed: {seed!r} is no whole number"
    server, ensemble = (record.get(key) or {} for key in ("server", "ensemble"))
    rows = ensemble.get("rows") or {} if isinstance(ensemble, dict) else {}
    objects = {"server": server, "ensemble": ensemble, "ensemble.rows": rows}
    if others := [f"{name}: {value!r} is no object" for name, value in objects.items() if not isinstance(value, dict)]:
        yield from others
        return
    rows = {f"ensemble.rows.{name}": value for name, value in rows.items()}
    told = {f"server.{key}": server.get(key) for key in ("accuracy_last", "accuracy_best")} | rows
    for name, value in told.items():
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
            yield f"{name}: {value!r} is no accuracy between 0 and 1"


def begun(record: Mapping[str, Any]) -> Run:
    """A run of which there is only its record yet."""
    return Run(**{name: record[name] for name in FACTS}, usual_rounds=record["usual_rounds"], status="unfinished")


def _run(record: dict[str, Any], place: str, folder: Path | None) -> Run:
    """A run from its summary, or from the trace of one that may have none."""
    try:
        status = STATUSES.get(record.get("status", ""))
        facts = {name: record.get(name) or unknown if status else record[name] for name, unknown in FACTS.items()}
        overrides, searched, studies = (tuple(record.get(key) or ()) for key in ("overrides", "searched", "studies"))
    except (KeyError, TypeError) as error:
        raise _foreign(place, repr(error) if record.keys() & OURS else NEITHER) from error
    if wrong := next(_impossible(record), None):
        raise _foreign(place, wrong)
    facts["usual_rounds"] = record.get("usual_rounds")
    known = {**facts, "folder": folder, "overrides": overrides, "searched": searched, "complete": "overrides" in record}
    if "server" in record:
        summary = {key: value for key, value in record.items() if key not in ("studies", WRITTEN)}
        return Run(**known, status="done", summary=summary, studies=frozenset(studies), written=record.get(WRITTEN))
    reason = "its summary is missing" if record.get("status") == "done" else record.get("error", "")
    return Run(**known, status=status or "unfinished", error=reason)
