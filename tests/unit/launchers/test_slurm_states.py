"""What counts as the end of a job, by Slurm's accounts and by its queue."""

import pytest

pytest.importorskip("submitit", reason="pip install 'oneshot-fl[slurm]'")

from oneshot_fl.launchers.engine import Task
from oneshot_fl.launchers.slurm import Slurm
from oneshot_fl.launchers.slurm_states import Accounts, Queue, why_waiting

OVER = ["COMPLETED", "CANCELLED", "CANCELLED by 1000", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"]
ON = ["PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING", "PREEMPTED", "COMPLETING"]
DISABLED = "echo Slurm accounting storage is disabled >&2; exit 1"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Commands of Slurm, as scripts; no others are there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def command(name, what):
        (folder / name).write_text(f"#!/bin/sh\n{what}\n")
        (folder / name).chmod(0o755)

    command("srun", "exit 0")
    return command


@pytest.mark.parametrize(("state", "over"), [*((state, True) for state in OVER), *((state, False) for state in ON)])
def test_only_a_state_that_a_job_does_not_leave_is_its_end(slurm, state, over):
    slurm("sacct", f'echo "JobID|State|NodeList"; echo "7_0|{state}|node"')
    assert Accounts().is_done("7_0", mode="force") is over


def test_without_accounts_a_job_that_the_queue_no_longer_lists_has_ended(slurm):
    watcher = Queue()
    slurm("squeue", 'echo "8_0 RUNNING"; echo "8_1 PENDING"; echo "8_2 FAILED"; echo "9 RUNNING"')
    assert [watcher.is_done(job, mode="force") for job in ("8_0", "8_1", "8_2", "8_3")] == [False, False, True, True]


def test_a_queue_that_does_not_answer_ends_no_job(slurm):
    watcher = Queue()
    slurm("squeue", "echo Unable to contact slurm controller >&2; exit 1")
    assert not watcher.is_done("8_0", mode="force")


@pytest.mark.parametrize("count", [1, 2], ids=["one", "array"])
@pytest.mark.parametrize(
    ("accounts", "watcher"), [("exit 0", Accounts), (DISABLED, Queue), (None, Queue)], ids=["kept", "disabled", "none"]
)
def test_jobs_are_followed_by_what_this_slurm_has(slurm, tmp_path, accounts, watcher, count):
    slurm("sbatch", "echo Submitted batch job 123")
    if accounts:
        slurm("sacct", accounts)
    engine = Slurm(jobs_per_gpu=1, folder=str(tmp_path / "%j"))
    jobs = engine.submit([Task(number, (), tmp_path, int, str(tmp_path)) for number in range(count)])
    assert [type(job.watcher) for job in jobs] == [watcher] * count
    again = engine.submit([Task(count, (), tmp_path, int, str(tmp_path))])
    assert len({id(job.watcher) for job in [*jobs, *again]}) == 1


def test_why_jobs_wait_is_told_in_slurms_words(slurm):
    lines = ["7 PartitionTimeLimit", "7 PartitionTimeLimit", "9 Priority", "8 ReqNodeNotAvail, UnavailableNodes:n1"]
    slurm("squeue", "\n".join(f'echo "{line}"' for line in lines))
    told = "in Slurm's queue: 2 (PartitionTimeLimit), 1 (ReqNodeNotAvail, UnavailableNodes:n1)"
    assert why_waiting({"7", "8"}) == told
    assert why_waiting({"10"}) == ""


def test_nothing_is_told_of_a_queue_that_does_not_answer(slurm):
    slurm("squeue", "echo 7 Priority; exit 1")
    assert why_waiting({"7"}) == ""


def test_nor_of_one_that_never_ends(slurm, monkeypatch):
    monkeypatch.setattr("oneshot_fl.launchers.slurm_states.PATIENCE", 0.1)
    slurm("squeue", "echo 7 Priority; exec /bin/sleep 60")
    assert why_waiting({"7"}) == ""
