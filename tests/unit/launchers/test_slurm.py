"""The script that Slurm would get, and jobs on submitit's local executor."""

import os
import re
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("submitit", reason="pip install 'oneshot-fl[slurm]'")

from submitit.core.utils import FailedJobError

from oneshot_fl.errors import OneshotError
from oneshot_fl.launchers.cores import THREADS
from oneshot_fl.launchers.engine import Outcome, Task
from oneshot_fl.launchers.loop import Talk, run_all
from oneshot_fl.launchers.slurm import Requeued, Slurm, SlurmHere
from oneshot_fl.sweeps.manifest import Manifest

GOLDEN = Path(__file__).parents[2] / "fixtures" / "sbatch.sh"


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A machine with a Slurm that only keeps the scripts that it is given."""
    commands, scripts = tmp_path / "bin", tmp_path / "scripts"
    commands.mkdir()
    scripts.mkdir()
    for name, what in {"srun": "exit 0", "sbatch": f'cp "$1" {scripts}/ && echo Submitted batch job 123'}.items():
        (commands / name).write_text(f"#!/bin/sh\n{what}\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    return scripts


def _tasks(folder, count):
    call = partial(Outcome, "done", 0.5)
    return [Task(number, (f"seed={number}",), folder / str(number), call, str(folder)) for number in range(count)]


def test_the_script_is_the_one_that_was_read_and_found_right(queue, tmp_path):
    engine = Slurm(
        jobs_per_gpu=1,
        folder=str(tmp_path / "%j"),
        job_name="oneshot_fl",
        partition="gpu",
        account=None,
        time=720,
        gpus_per_node=1,
        cpus_per_task=4,
        mem="16GB",
        array_parallelism=64,
        setup=["module load cuda"],
    )
    jobs = engine.submit(_tasks(tmp_path, 4))
    assert [job.job_id for job in jobs] == ["123_0", "123_1", "123_2", "123_3"]
    (script,) = queue.iterdir()
    plain = re.sub(r"\S*python\S*", "python", script.read_text().replace(str(tmp_path), "SWEEP"))
    assert plain == GOLDEN.read_text()


def test_it_tells_why_its_own_jobs_wait(queue, tmp_path, monkeypatch):
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho 123 PartitionTimeLimit\necho 7 Priority\n")
    (tmp_path / "bin" / "squeue").chmod(0o755)
    engine = Slurm(jobs_per_gpu=1, folder=str(tmp_path / "%j"))
    assert engine.waits_for() == ""
    engine.submit(_tasks(tmp_path, 1))
    assert engine.waits_for() == "in Slurm's queue: 1 (PartitionTimeLimit)"


class Cluster:
    """Slurm as it deals with arrays: each is held to its own limit alone. Of jobs that run, the oldest ends first.

    Jobs with odd numbers die once.
    """

    def __init__(self, scripts):
        self.scripts, self.arrays, self.ended, self.most = scripts, [], set(), 0

    def take(self, tasks):
        """What the script that was written last says of these jobs."""
        script = max(self.scripts.iterdir(), key=lambda path: path.stat().st_mtime_ns).read_text()
        limit = re.search(r"--array=.*%(\d+)", script)
        begun = [(task.number, task.attempt) for task in tasks]
        self.arrays.append((begun, int(limit[1]) if limit else len(tasks)))
        return [SimpleNamespace(done=partial(self._has_ended, job), result=partial(_end, *job)) for job in begun]

    def _has_ended(self, job):
        return job in self.ended

    def step(self, _running):
        left = [([job for job in jobs if job not in self.ended], limit) for jobs, limit in self.arrays]
        running = [job for jobs, limit in left for job in jobs[:limit]]
        self.most = max(self.most, len(running))
        self.ended.update(running[:1])


def _end(number, attempt):
    if number % 2 and attempt == 1:
        raise RuntimeError("killed")
    return Outcome("done", 0.5)


@pytest.mark.parametrize(("array", "parallelism", "most"), [(16, 3, 3), (6, 3, 3), (6, None, 6), (2, 3, 2)])
def test_more_jobs_than_one_array_has_do_not_run_at_once_either(queue, tmp_path, monkeypatch, array, parallelism, most):
    engine = Slurm(jobs_per_gpu=1, folder=str(tmp_path / "%j"), array=array, array_parallelism=parallelism)
    cluster, submit = Cluster(queue), engine.submit
    monkeypatch.setattr(engine, "submit", lambda tasks: (submit(tasks), cluster.take(tasks))[1])
    monkeypatch.setattr(engine, "pause", 0)
    tasks = _tasks(tmp_path, 16)
    talk = Talk(tmp_path, Manifest({task.number: task.overrides for task in tasks}), say=lambda _: None)
    monkeypatch.setattr(talk, "look", cluster.step)
    outcomes = run_all(engine, iter(tasks), talk, died=pytest.fail)
    assert (len(outcomes), cluster.most) == (16, most)


def test_what_slurm_does_not_know_is_one_line(queue, tmp_path):
    with pytest.raises(OneshotError, match="hydra/launcher=slurm: Unavailable parameter"):
        Slurm(jobs_per_gpu=1, folder=str(tmp_path), colour="blue")
    with pytest.raises(OneshotError, match=r"trainer\.jobs_per_gpu=2"):
        Slurm(jobs_per_gpu=2, folder=str(tmp_path))


@pytest.mark.parametrize(
    ("engine", "option"),
    [
        (Slurm, "array"),
        (Slurm, "array_parallelism"),
        (Slurm, "requeues"),
        (Slurm, "time"),
        (Slurm, "cpus_per_task"),
        (SlurmHere, "at_once"),
        (SlurmHere, "timeout_min"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, "abc", 1.5, True])
def test_a_wrong_number_is_one_line(queue, tmp_path, engine, option, value):
    with pytest.raises(OneshotError, match=rf"hydra\.launcher\.{option}={value}: must be a number of "):
        engine(jobs_per_gpu=1, folder=str(tmp_path), **{option: value})


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("time", "1-00:00:00", "a number of minutes"),
        ("time", None, "a number of minutes"),
        ("gpus_per_node", -1, "a whole number of at least 0, or null"),
        ("gpus_per_node", "a100", "a whole number of at least 0, or null"),
        ("setup", "module load cuda", "a list, each entry a text that is not empty, or null"),
        ("additional_parameters", "gres", "a dictionary {name: value}, or null"),
    ],
)
def test_what_would_only_be_found_out_in_the_queue_is_one_line(queue, tmp_path, option, value, wanted):
    with pytest.raises(OneshotError, match=rf"^hydra\.launcher\.{option}=.*: must be {wanted}"):
        Slurm(jobs_per_gpu=1, folder=str(tmp_path), **{option: value})


def test_a_job_on_a_node_without_gpus_or_with_the_sites_own_share_is_right(queue, tmp_path):
    Slurm(jobs_per_gpu=0, folder=str(tmp_path), time=30, gpus_per_node=0, cpus_per_task=None, setup=None)


def test_a_folder_that_cannot_be_made_is_named(queue):
    for engine in (Slurm, SlurmHere):
        with pytest.raises(OneshotError, match=r"^hydra\.launcher\.folder=/dev/null/x: cannot be written \("):
            engine(jobs_per_gpu=1, folder="/dev/null/x").submit(_tasks(Path("/dev/null"), 1))


def test_without_slurm_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OneshotError, match=r"hydra/launcher=slurm: .*srun"):
        Slurm(jobs_per_gpu=1, folder=str(tmp_path))


def test_jobs_run_on_submitits_local_executor(tmp_path):
    engine = SlurmHere(jobs_per_gpu=1, folder=str(tmp_path / "%j"))
    assert [job.result().value for job in engine.submit(_tasks(tmp_path, 2))] == [0.5, 0.5]


def test_jobs_on_this_machine_share_its_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.launchers.cores.cpu_count", lambda: 6)
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    task = replace(_tasks(tmp_path, 1)[0], call=lambda: Outcome("done", float(os.environ["OMP_NUM_THREADS"])))
    (job,) = SlurmHere(jobs_per_gpu=1, folder=str(tmp_path / "%j"), at_once=2).submit([task])
    assert job.result().value == 3.0


def test_a_job_has_failed_once_its_time_was_up_as_often_as_it_may_be(tmp_path):
    begun = tmp_path / "begun"

    def stopped():
        with begun.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(60)

    class Twice(SlurmHere):
        def _executor(self, folder, requeues):
            assert requeues == 100
            return super()._executor(folder, 2)

    task = replace(_tasks(tmp_path, 1)[0], call=stopped)
    (job,) = Twice(jobs_per_gpu=1, folder=str(tmp_path / "%j"), timeout_min=1).submit([task])
    with pytest.raises(FailedJobError, match="timed-out too many times"):
        job.result()
    assert begun.read_text() == "xxx"


def test_a_job_whose_time_is_up_goes_back_into_the_queue_and_is_done_later(tmp_path):
    begun = tmp_path / "begun"

    def stopped_once():
        with begun.open("a") as file:
            file.write("x")
        if begun.stat().st_size == 1:
            os.kill(os.getpid(), signal.SIGUSR2)
            time.sleep(60)
        return Outcome("done", 0.5)

    task = replace(_tasks(tmp_path, 1)[0], call=stopped_once)
    (job,) = SlurmHere(jobs_per_gpu=1, folder=str(tmp_path / "%j")).submit([task])
    assert (job.result().status, begun.read_text()) == ("done", "xx")


@pytest.fixture
def in_place(monkeypatch):
    """The working folder is put back."""
    monkeypatch.chdir(Path.cwd())


def test_slurms_own_stop_does_not_break_into_what_goes_back(in_place, tmp_path):
    (task,) = _tasks(tmp_path, 1)
    assert Requeued().checkpoint(task).args == (task,)
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_stopped_job_leaves_no_result_that_would_end_it(in_place, tmp_path):
    def stopped():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    with pytest.raises(SystemExit):
        Requeued()(replace(_tasks(tmp_path, 1)[0], call=stopped))
