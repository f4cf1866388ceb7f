"""Of runs alike, in all their settings and the seed, the one that tables tell, with what only the others measured."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from oneshot_fl.process import say
from oneshot_fl.reporting.tables.differences import canonical
from oneshot_fl.reporting.tables.run import Run


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Of runs alike (settings and seed) a done one, else the newer; `runs` come oldest first.

    Ensembles that only an older one tested are told by the newer, where both ran the same code and found the same. Of
    two in files of an earlier version, which do not tell their time, the last named counts.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(identity(run), []).append(run)
    kept = [_one_of(alike) for alike in groups.values()]
    _tell_of_other_results(zip(kept, groups.values(), strict=True))
    _tell_of_lost_rows(zip(kept, groups.values(), strict=True))
    done = {run.overrides for run in kept if run.status == "done"}
    return [run for run in kept if run.settings or not run.overrides or run.overrides not in done]


def _one_of(alike: list[Run]) -> Run:
    *older, newest = [run for run in alike if run.status == "done"] or alike
    same = [run for run in older if _found_the_same(run, newest)]
    rows = reduce(_with_rows, (run.summary for run in reversed(same)), newest.summary)
    return replace(for_all(newest, alike), summary=rows)


def for_all(kept: Run, alike: Iterable[Run]) -> Run:
    """A run that stands for all of those alike, also in their studies."""
    return replace(kept, studies=frozenset().union(*(run.studies | {run.study} for run in alike)))


def _found_the_same(first: Run, second: Run) -> bool:
    """Whether two runs alike ran the same code and agree in all accuracies, but for which ensembles they tested."""
    ours, theirs = (_found(run.summary or {}) for run in (first, second))
    return ours is not None and ours == theirs


def _found(summary: Mapping[str, Any]) -> Any:
    """None of a summary of an earlier version, which does not tell its code."""
    digest = (summary.get("code") or {}).get("digest")
    return [digest, [{**each, "ensembles": None} for each in summary["communication"]]] if digest else None


def _with_rows(summary: Any, other: Any) -> Any:
    """A summary with the ensembles that only the other one tested."""
    own, theirs = summary["ensemble"], other["ensemble"]
    tested = [key for key in ("rows", "balanced") if key in own and key in theirs]  # earlier versions had no "balanced"
    pairs = zip(summary["communication"], other["communication"], strict=True)
    return {
        **summary,
        "ensemble": {**own, **{key: {**theirs[key], **own[key]} for key in tested}},
        "communication": [{**each, "ensembles": {**its["ensembles"], **each["ensembles"]}} for each, its in pairs],
    }


def _tell_of_lost_rows(groups: Iterable[tuple[Run, list[Run]]]) -> None:
    """Say which ensembles are in no table any more although an older run had tested them."""
    lost = [left for kept, alike in groups if (left := set[str]().union(*map(_tested, alike)) - _tested(kept))]
    if lost:
        say(
            f"{len(lost)} runs were made again by other code, or with another result, and without the ensembles "
            f"{', '.join(sorted(set[str]().union(*lost)))}, whose rows of before are left out; run them again with "
            "these (evaluate.ensembles)"
        )


def _tested(run: Run) -> set[str]:
    """The ensembles that a run tells of."""
    return set(((run.summary or {}).get("ensemble") or {}).get("rows") or ())


def _tell_of_other_results(groups: Iterable[tuple[Run, list[Run]]]) -> None:
    """Say of how many runs there are other results too, which no table shows."""
    disputed = [kept for kept, alike in groups if _disagree(alike)]
    timed = [run for run in disputed if run.written is not None]
    if untimed := len(disputed) - len(timed):
        say(f"{untimed} runs are in these files with two results, not told from when; the one named last counts")
    if timed:
        where = f", here that of {timed[0].folder}" if timed[0].folder else ""
        say(f"{len(timed)} runs are here with more than one result; the newest counts{where}")


def _disagree(alike: list[Run]) -> bool:
    """Whether runs alike found different things."""
    found = [run.summary.get("server") for run in alike if run.summary]
    return any(each != found[0] for each in found)


def identity(run: Run) -> str:
    """Everything that is set, the seed included; of a run that failed before that was known, its folder."""
    place = None if run.settings else str(run.folder)
    return canonical([run.data, run.method, run.seed, run.models, run.shared, run.row, place])
