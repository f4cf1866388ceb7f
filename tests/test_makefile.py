"""Targets of several commands: what they need is asked for first, and what fails is not lost."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COLUMNS = [f"experiment=evidence/{name}" for name in ("mnist_dirichlet", "mnist_two_classes")]


def _make(*words: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name not in ("DATA", "MAKEFLAGS", "MAKELEVEL")}
    return subprocess.run(["make", *words], env=own, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", ["evidence", "gpu-evidence"])
@pytest.mark.parametrize("data", [(), ("DATA=",)])
def test_evidence_without_data_is_one_line_before_anything_is_set_up(target, data):
    done = _make(target, *data, "READY=/nowhere/ready", "PYTHON=false")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"make {target} DATA=folder" in line
    assert done.stdout == ""


@pytest.mark.parametrize(("code", "columns"), [(0, 2), (1, 2), (143, 1)])
def test_a_column_that_fails_is_told_at_the_end_and_one_that_was_stopped_ends_all(code, columns, tmp_path):
    (tmp_path / "ready").touch()
    run = tmp_path / "run"
    run.write_text(f'#!/bin/sh\necho "$4" >> {tmp_path}/ran\ncase "$4" in *dirichlet) exit {code};; esac\n')
    run.chmod(0o755)
    done = _make("evidence", "DATA=data", f"READY={tmp_path / 'ready'}", f"RUN={run}")
    assert (done.returncode == 0) == (code == 0)
    assert (tmp_path / "ran").read_text().split() == COLUMNS[:columns]


@pytest.mark.parametrize(("code", "judged"), [(0, ["tests/unit/test_a.py", "tests/test_architecture.py"]), (2, [])])
def test_a_change_that_could_not_be_told_is_judged_by_no_test_and_fails(code, judged, tmp_path):
    (tmp_path / "ready").touch()
    run, told = tmp_path / "run", tmp_path / "judged"
    run.write_text(
        f'#!/bin/sh\ncase "$2" in tests.changed) echo tests/unit/test_a.py; exit {code};; '
        f'pytest) for word; do case "$word" in tests/*) echo "$word" >> {told};; esac; done;; esac\n'
    )
    run.chmod(0o755)
    done = _make("check", "BASE=mian", f"READY={tmp_path / 'ready'}", f"RUN={run}")
    assert (done.returncode == 0) == (code == 0)
    assert (told.read_text().split() if told.exists() else []) == judged


@pytest.mark.parametrize(
    ("target", "data", "word"),
    [
        ("evidence", "my data=1,2", "data.root='my data=1,2'"),
        ("evidence", "~/data", "data.root='~/data'"),
        ("gpu-evidence", "my data=1,2", "my data=1,2"),
        ("gpu-evidence", "~/data", f"{Path.home()}/data"),
    ],
)
def test_a_folder_of_any_name_arrives_as_one_word(target, data, word, tmp_path):
    (tmp_path / "ready").touch()
    run = tmp_path / "run"
    run.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/words\n')
    run.chmod(0o755)
    assert _make(target, f"DATA={data}", f"READY={tmp_path / 'ready'}", f"RUN={run}").returncode == 0
    assert word in (tmp_path / "words").read_text().splitlines()
