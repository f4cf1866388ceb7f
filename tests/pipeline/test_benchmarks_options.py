"""Mistakes in the benchmarks' command lines: one line and exit code 2, before anything is measured or run."""

import sys

import pytest
import torch

import oneshot_fl
from benchmarks import __main__ as main
from benchmarks import attacks, cases, gpu_evidence, honest_uploads, report, store, sweeps


def _told(monkeypatch, capsys, program, *words: str) -> str:
    """The one line with which a program ends."""
    monkeypatch.setattr(sys, "argv", [program.__name__, *words])
    with pytest.raises(SystemExit) as end:
        program.main()
    assert end.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    return line


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch):
    for where, name in ((sweeps, "measure"), (store, "measure"), (report, "measure"), (honest_uploads, "federation")):
        monkeypatch.setattr(where, name, None)
    monkeypatch.setattr(oneshot_fl, "run", None)
    monkeypatch.setattr(main, "keep_freed_memory", None)


@pytest.mark.parametrize("number", ["0", "-3", "1.5", "many"])
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (main, ["--repeats"]),
        (sweeps, ["--jobs"]),
        (store, ["--artifacts", "100"]),
        (honest_uploads, ["--federations"]),
        (attacks, ["OUT.jsonl", "--clients"]),
        (attacks, ["OUT.jsonl", "--hostile"]),
    ],
)
def test_how_many_is_a_whole_number_above_0(program, words, number, monkeypatch, capsys):
    option = words[0] if words[0].startswith("--") else words[1]
    line = _told(monkeypatch, capsys, program, *words, number)
    assert line == f"oneshot_fl: {option}: {number} must be a whole number above 0 (--help tells more)"


def test_one_table_at_least_is_asked_for(monkeypatch, capsys):
    assert "--only: expected at least one" in _told(monkeypatch, capsys, main, "--only")


@pytest.mark.parametrize("program", [main, sweeps, store, honest_uploads, attacks, gpu_evidence, report])
def test_an_option_that_there_is_not_is_one_line(program, monkeypatch, capsys):
    out = ["OUT.jsonl"] if program is attacks else []
    assert "--no-such" in _told(monkeypatch, capsys, program, *out, "--no-such")


def test_no_accelerator_is_measured_where_there_is_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(cases.GROUPS, "Choices", None)
    (table, _) = cases.ON_ACCELERATOR
    words = ("--only", "Choices", table, "--out", str(tmp_path / "speed.json"))
    line = _told(monkeypatch, capsys, main, *words)
    assert line == f'oneshot_fl: --only "{table}": there is no CUDA device here; choose other tables'
    assert list(tmp_path.iterdir()) == []


def test_no_more_clients_are_hostile_than_there_are(tmp_path, monkeypatch, capsys):
    line = _told(monkeypatch, capsys, attacks, str(tmp_path / "OUT.jsonl"), "--hostile", "9", "--clients", "5")
    assert line == "oneshot_fl: --hostile 9: must be at most 5, as many as --clients says"
    assert list(tmp_path.iterdir()) == []
