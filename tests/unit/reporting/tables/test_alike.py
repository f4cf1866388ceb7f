"""Of runs alike one, with what the others measured besides."""

import json
from pathlib import Path

import pytest

from oneshot_fl.reporting.tables.alike import distinct
from oneshot_fl.reporting.tables.run import Run

ALL = {"uniform": 0.5, "size_weighted": 0.55, "boosted": 0.6}


def _run(rows, *, code="c0de", accuracy=0.6, status="done", seed=0):
    found = {"clients": [0.4], "accuracy_last": accuracy, "accuracy_best": accuracy}
    summary = {
        "code": {"digest": code},
        "ensemble": {"rows": rows, "balanced": {name: value / 2 for name, value in rows.items()}},
        "communication": [{**found, "ensembles": rows}],
    }
    facts = {"method": "fedavg", "changed": {}, "data": "digits", "budget": "demo", "study": "s", "models": {}}
    known = {**facts, "seed": seed, "settings": {"method": {"name": "fedavg"}}, "folder": Path("run")}
    return Run(**known, status=status, summary=summary if status == "done" else None)


def _rows(run):
    """Those of a table of accuracies, of one of balanced accuracies, and beside a paper's of each exchange."""
    rows, balanced = (run.summary["ensemble"][key] for key in ("rows", "balanced"))
    exchanges = [each["ensembles"] for each in run.summary["communication"]]
    return [rows, {name: 2 * value for name, value in balanced.items()}, *exchanges]


def test_ensembles_that_only_an_older_run_tested_are_told_by_the_newer(capsys):
    fewer = {"uniform": 0.5}
    runs = [_run(ALL), _run({"entropy": 0.7}), _run(fewer), _run({}, status="failed"), _run(ALL, seed=1)]
    before = json.dumps([run.summary for run in runs])
    first, second = distinct(runs)
    assert _rows(first) == [{**ALL, "entropy": 0.7}] * 3
    assert _rows(second) == [ALL] * 3
    assert json.dumps([run.summary for run in runs]) == before
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("older", [{"code": "0ther"}, {"accuracy": 0.61}, {"code": None}])
def test_rows_of_other_code_or_of_another_result_are_left_out_and_that_is_told(older, capsys):
    (run,) = distinct([_run(ALL, **older), _run({"uniform": 0.5})])
    assert _rows(run) == [{"uniform": 0.5}] * 3
    assert (
        "1 runs were made again by other code, or with another result, and without the ensembles boosted, size_w"
        in (capsys.readouterr().err)
    )


def test_summaries_of_earlier_versions_which_do_not_tell_their_code_stay_as_they_are():
    older, newer = _run(ALL, code=None), _run({"uniform": 0.5}, code=None)
    (run,) = distinct([older, newer])
    assert run.summary == newer.summary


def test_runs_of_a_version_without_balanced_accuracies_are_one_run_too():
    runs = [_run(ALL), _run({"entropy": 0.7})]
    for run in runs:
        del run.summary["ensemble"]["balanced"]
    (run,) = distinct(runs)
    assert run.summary["ensemble"] == {"rows": {**ALL, "entropy": 0.7}}


def test_a_newer_result_counts_where_both_have_one():
    (run,) = distinct([_run({"uniform": 0.4}), _run({"uniform": 0.5})])
    assert _rows(run) == [{"uniform": 0.5}] * 3
