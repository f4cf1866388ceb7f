"""How jobs stand, by the traces that they left."""

import json
import os
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from oneshot_fl.sweeps.lines import duration, last_line, overview, status_lines
from oneshot_fl.sweeps.manifest import Manifest
from oneshot_fl.sweeps.state import counts, jobs_of, seconds_left, unseen

NOW = 1_000_000.0


@pytest.fixture(scope="module")
def gone():
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def sweep(tmp_path, gone):
    """Seven jobs of which every one stands otherwise."""
    here = {"host": socket.gethostname(), "pid": os.getpid()}
    traces = [
        {"status": "done", "seconds": 100.0},
        {"status": "failed", "error": "data.size=0: must be 1"},
        {"status": "running", **here, "device": "cuda:1", "begun": NOW - 50},
        {"status": "running", **here, "pid": gone},
        {"status": "running", "host": "elsewhere", "pid": os.getpid(), "begun": NOW - 20},
        {"status": "running", "host": "elsewhere", "pid": os.getpid()},
    ]
    for number, trace in enumerate(traces):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"job": number, **trace}))
        os.utime(folder / "run.json", (NOW - (600 if number == 5 else 10),) * 2)
    (tmp_path / "2" / "progress.txt").write_text("distillation: 3 of 10 rounds after 5 s\n")
    return tmp_path, Manifest({number: ("method=dense", f"seed={number}") for number in range(7)})


def test_a_job_that_says_that_it_runs_is_asked_for_signs_of_life(sweep):
    folder, manifest = sweep
    jobs = jobs_of(folder, manifest, now=NOW)
    assert [job.status for job in jobs] == ["done", "failed", "running", "killed", "running", "killed", "to do"]
    assert counts(jobs) == {"done": 1, "running": 2, "failed": 1, "killed": 2, "to do": 1}
    assert jobs[2].progress.startswith("distillation: 3 of 10")


def test_jobs_of_a_sweep_in_a_sweeps_folder_are_not_its_own(sweep):
    folder, manifest = sweep
    before = jobs_of(folder, manifest, now=NOW)
    for inner in (folder / "second", folder / "1" / "third"):
        Manifest({1: ("method=fedavg",)}).write(inner)
        (inner / "1-method=fedavg").mkdir()
        (inner / "1-method=fedavg" / "run.json").write_text(json.dumps({"job": 1, "status": "done"}))
        assert [job.status for job in jobs_of(inner, Manifest({1: ("method=fedavg",)}), now=NOW)] == ["done"]
    assert jobs_of(folder, manifest, now=NOW) == before


def test_another_process_of_the_same_number_is_no_sign_of_life(sweep):
    folder, manifest = sweep
    os.utime(folder / "2" / "run.json", (NOW - 7 * 24 * 3600,) * 2)
    assert jobs_of(folder, manifest, now=NOW)[2].status == "killed"


def test_what_is_left_takes_what_others_took(sweep):
    folder, manifest = sweep
    jobs = jobs_of(folder, manifest, now=NOW)
    assert seconds_left(jobs, NOW) == (50 + 80 + 100) / 2
    assert overview(jobs, NOW) == "1 done, 2 running, 1 failed, 2 killed, 1 to do; about 2 min left"
    assert seconds_left([job for job in jobs if job.status != "running"], NOW) is None


def test_status_tells_what_runs_and_how_to_run_again_what_failed(sweep):
    folder, manifest = sweep
    lines = status_lines(folder, jobs_of(folder, manifest, now=NOW), NOW)
    assert lines[0].startswith(f"{folder}: 7 jobs: 1 done, 2 running")
    host = socket.gethostname()
    assert f"job 2 of 7 running on {host}, cuda:1: seed=2; distillation: 3 of 10 rounds after 5 s" in lines
    at = lines.index("job 1 of 7 failed: seed=1; data.size=0: must be 1")
    assert lines[at + 1] == f"  python -m oneshot_fl method=dense seed=1 'hydra.run.dir=\"{folder / '1'}\"'"
    assert len(lines) == 1 + 2 + 2 * 3


def test_a_printed_command_is_what_hydra_understands(tmp_path):
    folder, own = tmp_path / '0-method=fedavg,name="a b"', "hydra.searchpath=[file:///own]"
    command = ("-m", own, "--config-dir", "mine", "method=fedavg", "seed=0,1")
    job = replace(unseen(0, Manifest({0: ("method=fedavg", "seed=0")}, command=command)), folder=folder)
    words = shlex.split(job.command)
    assert words[:5] == ["python", "-m", "oneshot_fl", "--config-dir=mine", own]
    parsed = OverridesParser.create().parse_overrides(words[4:])
    assert [each.value() for each in parsed[1:]] == ["fedavg", 0, str(folder)]


def test_the_last_line_counts_jobs_and_names_the_folders_of_those_not_done(sweep, monkeypatch):
    folder, manifest = sweep
    assert last_line(folder) == ""
    manifest.write(folder)
    monkeypatch.setattr("time.time", lambda: NOW)
    assert last_line(folder) == (
        f"1 done in {folder}, 1 failed: {folder / '1'}, 2 running: {folder / '2'}, {folder / '4'}, "
        f"2 killed: {folder / '3'}, {folder / '5'}, 1 to do: seed=6"
    )


@pytest.mark.parametrize(("seconds", "said"), [(12.4, "12 s"), (600, "10 min"), (7200, "2.0 h")])
def test_times_are_told_as_people_do(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize("damage", [{"begun": None}, {"pid": "one"}, {"seconds": "long"}, {"job": [0]}, {"host": None}])
def test_a_damaged_trace_does_not_hide_the_other_jobs(sweep, damage):
    folder, manifest = sweep
    trace = json.loads((folder / "2" / "run.json").read_text())
    (folder / "2" / "run.json").write_text(json.dumps({**trace, **damage}))
    jobs = jobs_of(folder, manifest, now=NOW)
    assert [job.status for job in jobs if job.number != 2] == ["done", "failed", "killed", "running", "killed", "to do"]
    assert overview(jobs, NOW)
    assert status_lines(folder, jobs, NOW)


def test_of_a_jobs_folders_one_that_runs_or_is_done_counts_and_else_the_newest(sweep):
    folder, manifest = sweep
    tries = {
        "a": {"job": 1, "status": "failed", "begun": NOW - 9},
        "z": {"job": 1, "status": "interrupted", "begun": NOW - 8},
        "b": {"job": 0, "status": "failed", "begun": NOW - 7},
        "c": {"job": 2, "status": "done", "begun": NOW - 6},
    }
    for name, trace in tries.items():
        (folder / name).mkdir()
        (folder / name / "run.json").write_text(json.dumps(trace))
    jobs = jobs_of(folder, manifest, now=NOW)
    told = [(job.status, job.folder.name) for job in jobs[:3]]
    assert told == [("done", "0"), ("interrupted", "z"), ("running", "2")]


def test_a_jobs_folder_behind_a_link_is_found_and_another_sweeps_is_not(sweep, tmp_path_factory):
    folder, manifest = sweep
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "0").rename(elsewhere / "0")
    (folder / "0").symlink_to(elsewhere / "0")
    Manifest({0: ("method=fedavg",)}).write(elsewhere / "another")
    (elsewhere / "another" / "deep").mkdir()
    (elsewhere / "another" / "deep" / "run.json").write_text(json.dumps({"job": 6, "status": "done"}))
    (folder / "another").symlink_to(elsewhere / "another")
    (folder / "back").symlink_to(folder)
    jobs = jobs_of(folder, manifest, now=NOW)
    assert (jobs[0].status, jobs[0].folder, jobs[6].status) == ("done", folder / "0", "to do")


def test_a_command_of_a_sweep_that_began_elsewhere_goes_there_first(tmp_path, monkeypatch):
    job = replace(unseen(0, Manifest({0: ("method=fedavg",)}, cwd="/a b")), folder=tmp_path / "0")
    assert shlex.split(job.command)[:6] == ["cd", "/a b", "&&", "python", "-m", "oneshot_fl"]
    monkeypatch.chdir(tmp_path)
    here = unseen(0, Manifest({0: ("method=fedavg",)}))
    assert here.command == "python -m oneshot_fl method=fedavg"
    assert f'"{tmp_path}/0"' in replace(here, folder=Path("0")).command
