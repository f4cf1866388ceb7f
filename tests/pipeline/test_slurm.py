"""A sweep on the Slurm that is here; docs/contributing.md says how a machine gets one."""

import signal
import subprocess
import time

import pytest

from oneshot_fl.sweeps.manifest import read_manifest
from oneshot_fl.sweeps.state import jobs_of
from oneshot_fl.tracking.progress import HEARTBEAT
from tests.composing import TINY
from tests.pipeline.cli import call, command, environment


def _slurm(*words: str) -> str | None:
    """What a command of Slurm's prints; None where there is no Slurm that answers."""
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


@pytest.fixture(scope="module", autouse=True)
def a_slurm_that_answers():
    if _slurm("sinfo") is None:
        pytest.skip("no Slurm here")


pytestmark = pytest.mark.slow
SWEEP = (
    *("-m", "hydra.sweep.dir=sweep", "method=fedavg", "seed=0,1", "hydra/launcher=slurm"),
    *(
        "hydra.launcher.gpus_per_node=0",
        "hydra.launcher.cpus_per_task=1",
        "hydra.launcher.mem=2GB",
        "hydra.launcher.time=10",
    ),
)


def test_jobs_run_in_the_queue_and_are_found_again(tmp_path):
    first = call(*SWEEP, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    jobs = jobs_of(tmp_path / "sweep", read_manifest(tmp_path / "sweep"))
    assert [job.status for job in jobs] == ["done", "done"]
    again = call(*SWEEP, cwd=tmp_path)
    assert again.stderr.count("was done before") == 2


def test_what_has_not_begun_is_told_with_slurms_reason(tmp_path):
    words = command(*SWEEP, *TINY, "hydra.launcher.additional_parameters={begin:now+1hour}")
    environ = environment(tmp_path / "store")
    process = subprocess.Popen(words, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    time.sleep(HEARTBEAT + 30)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    array = said.partition("scancel ")[2].split()[0]
    assert _slurm("scancel", array) is not None, said
    assert said.startswith("2 to do; in Slurm's queue: 2 (BeginTime)\n")
    assert process.returncode == 128 + signal.SIGINT
