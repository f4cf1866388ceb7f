"""What a sweep remembers of itself."""

from pathlib import Path

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.sweeps.manifest import Manifest, extended, read_manifest
from oneshot_fl.sweeps.rerun import command_of_failed, go_to

JOBS = {0: ("method=dense", "seed=0", "trainer=cpu"), 1: ("method=dense", "seed=1", "trainer=cpu")}


def test_it_reads_what_it_wrote(tmp_path):
    manifest = Manifest(JOBS, launcher="joblib", command=("-m", "seed=0,1"))
    manifest.write(tmp_path)
    assert read_manifest(tmp_path) == manifest


def test_a_job_is_told_by_what_others_do_not_have():
    manifest = Manifest(JOBS)
    assert [manifest.what(job) for job in JOBS.values()] == ["seed=0", "seed=1"]
    assert Manifest({0: JOBS[0]}).what(JOBS[0]) == "method=dense seed=0 trainer=cpu"
    assert Manifest({0: ()}).what(()) == "no overrides"


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


def test_failed_jobs_run_by_the_sweeps_own_command_in_its_own_folder():
    command = ("-m", "seed=0,1", "hydra.sweep.dir=old", "hydra/launcher=joblib", "hydra.launcher.only=failed")
    again = command_of_failed(Path("/x"), Manifest(JOBS, command=command))
    assert again == ["-m", "seed=0,1", "hydra/launcher=joblib", 'hydra.sweep.dir="/x"', "hydra.launcher.only=failed"]
    with pytest.raises(OneshotError, match="OptunaSweeper chooses its jobs"):
        command_of_failed(Path("/x"), Manifest(JOBS, sweeper="OptunaSweeper"))


def test_a_sweep_whose_folder_is_gone_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OneshotError, match="it is gone"):
        go_to(Manifest(JOBS, cwd=str(tmp_path / "gone")))
    go_to(Manifest(JOBS, cwd=str(tmp_path)))
