"""What a sweep remembers of itself."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser

from oneshot_fl.errors import OneshotError
from oneshot_fl.sweeps.manifest import Manifest, extended, read_manifest
from oneshot_fl.sweeps.rerun import check_made, command_of_failed, go_to
from oneshot_fl.sweeps.state import jobs_of, unseen

JOBS = {0: ("method=dense", "seed=0", "trainer=cpu"), 1: ("method=dense", "seed=1", "trainer=cpu")}


def test_it_reads_what_it_wrote(tmp_path):
    manifest = Manifest(JOBS, launcher="joblib", command=("-m", "seed=0,1"))
    manifest.write(tmp_path)
    assert read_manifest(tmp_path) == manifest


def test_a_folder_of_sweeps_is_told_its_newest(tmp_path):
    with pytest.raises(OneshotError, match=r"holds no sweep\.json; give the folder of a sweep \(hydra\.sweep\.dir\)$"):
        read_manifest(tmp_path)
    for at, place in enumerate(("2026-01-01/10-00-00", "mine")):
        (tmp_path / place).mkdir(parents=True)
        Manifest(JOBS).write(tmp_path / place)
        os.utime(tmp_path / place / "sweep.json", (at, at))
    with pytest.raises(OneshotError, match=rf"the newest below it is {tmp_path}/mine$"):
        read_manifest(tmp_path)


def test_a_job_is_told_by_what_others_do_not_have():
    manifest = Manifest(JOBS)
    assert [manifest.what(job) for job in JOBS.values()] == ["seed=0", "seed=1"]
    assert Manifest({0: JOBS[0]}).what(JOBS[0]) == "method=dense seed=0 trainer=cpu"
    assert Manifest({0: ()}).what(()) == "no overrides"


def test_what_all_jobs_have_is_found_once_and_not_written(tmp_path):
    class Jobs(dict):
        looked = 0

        def values(self):
            Jobs.looked += 1
            return super().values()

    manifest = Manifest(Jobs(JOBS))
    assert [job.what for job in jobs_of(tmp_path, manifest)] == ["seed=0", "seed=1"]
    assert Jobs.looked == 1
    manifest.write(tmp_path)
    assert read_manifest(tmp_path) == manifest


@pytest.mark.parametrize(
    "text", [None, "{}", "[]", '{"jobs": 3, "command": []}', '{"jobs": {}, "command": [], "x": 1}']
)
def test_what_is_no_sweep_is_one_line(tmp_path, text):
    if text is not None:
        (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(OneshotError, match="sweep"):
        read_manifest(tmp_path)


def test_a_batch_joins_the_jobs_before_it_and_another_sweep_does_not(tmp_path):
    Manifest(JOBS, began=5.0).write(tmp_path)
    joined = extended(tmp_path, Manifest({2: ("seed=2",)}))
    assert (set(joined.jobs), joined.began) == ({0, 1, 2}, 5.0)
    with pytest.raises(OneshotError, match=r"job 1 of the sweep there is method=dense seed=1 trainer=cpu, not seed=7"):
        extended(tmp_path, Manifest({1: ("seed=7",)}))
    assert extended(tmp_path / "new", Manifest(JOBS)).jobs == JOBS


def test_of_two_commands_the_one_that_makes_all_jobs_is_kept(tmp_path):
    all_of_them = Manifest(JOBS, command=("-m", "seed=0,1"), cwd="/first")
    all_of_them.write(tmp_path)
    some = Manifest({0: JOBS[0]}, command=("-m", "seed=0"), cwd="/second")
    assert extended(tmp_path, some) == all_of_them
    again = replace(all_of_them, command=("-m", "seed=0,1", "hydra/launcher=joblib"))
    assert extended(tmp_path, again).command == again.command
    more = Manifest({**JOBS, 2: ("seed=2",)}, command=("-m", "seed=0,1,2"))
    assert extended(tmp_path, more).command == more.command


def test_a_failed_job_that_the_command_does_not_make_is_told_with_what_to_do():
    manifest = Manifest(JOBS)
    failed = [unseen(number, manifest) for number in JOBS]
    check_made(failed, JOBS, Path("/x"))
    with pytest.raises(OneshotError, match=r"^/x: .*failed: 1 \(seed=1\); run the single commands"):
        check_made(failed, {0: JOBS[0]}, Path("/x"))


def test_failed_jobs_run_by_the_sweeps_own_command_in_its_own_folder():
    command = ("-m", "seed=0,1", "hydra.sweep.dir=old", "hydra/launcher=joblib", "hydra.launcher.only=failed")
    again = command_of_failed(Path("/x"), Manifest(JOBS, command=command))
    assert again == ["-m", "seed=0,1", "hydra/launcher=joblib", 'hydra.sweep.dir="/x"', "hydra.launcher.only=failed"]
    with pytest.raises(OneshotError, match="OptunaSweeper chooses its jobs"):
        command_of_failed(Path("/x"), Manifest(JOBS, sweeper="OptunaSweeper"))


@pytest.mark.parametrize(
    "typed",
    [
        "method=a,b seed=0 -m",
        "-m method=a,b seed=0 --config-dir own",
        "-m --config-dir own method=a,b seed=0",
        "--config-dir=own method=a,b seed=0 --multirun",
        "--config-dir alpha=1 -m method=a,b seed=0",
        "-m method=a,b seed=0 -cd alpha=1",
        "method=a,b ~attack hydra.sweep.dir=old -m",
        "hydra.sweep.dir=old --config-dir own -m",
        "hydra.searchpath=[file:///x] method=a,b -m --config-dir=own",
        "-m method=a,b -cd=own -cn other",
        "--config-di own -m --config-name=other method=a,b",
        "--config-path /whole ++hydra.searchpath=[file:///x] method=a,b -m",
        "-m +hydra.job.env_set.ALPHA=0.1 hydra.job.chdir=true method=a,b --config-dir own",
    ],
)
def test_hydra_takes_the_command_of_failed_jobs_wherever_its_options_stood(typed):
    parser, manifest = get_args_parser(), Manifest(JOBS, command=tuple(typed.split()))
    before, again = (parser.parse_args(words) for words in (typed.split(), command_of_failed(Path("/x"), manifest)))
    kept = [word for word in before.overrides if word != "hydra.sweep.dir=old"]
    assert sorted(again.overrides) == sorted([*kept, 'hydra.sweep.dir="/x"', "hydra.launcher.only=failed"])
    alone = parser.parse_args([*manifest.searched, *JOBS[0]])
    read = [(each.config_path, each.config_name, each.config_dir) for each in (before, again, alone)]
    assert read == [read[0]] * 3
    assert again.multirun
    also = [word for word in kept if "hydra.searchpath" in word or "hydra.job" in word]
    assert alone.overrides == [*also, *JOBS[0]]


def test_a_sweep_whose_folder_is_gone_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OneshotError, match="it is gone"):
        go_to(Manifest(JOBS, cwd=str(tmp_path / "gone")))
    go_to(Manifest(JOBS, cwd=str(tmp_path)))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "sweep").write_text("a plain file")
    with pytest.raises(OneshotError, match="sweep: cannot be written"):
        Manifest(JOBS).write(tmp_path / "sweep")
