"""What is said of a sweep: a line a job that ends, a line a minute, and the answer of `oneshot-fl status`."""

from collections.abc import Iterable
from pathlib import Path

from oneshot_fl.sweeps.manifest import MANIFEST, read_manifest
from oneshot_fl.sweeps.state import NOT_DONE, Job, counts, jobs_of, seconds_left


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def one_job(job: Job, total: int, more: str = "") -> str:
    """`job 3 of 40 done in 35 s on host, cuda:2: method=dense seed=3`, and what is wrong with it.

    Jobs are counted from 0, as their folders are.
    """
    took = f" in {duration(job.seconds)}" if job.seconds is not None and job.status != "running" else ""
    where = f" on {job.place}" if job.place else ""
    said = "; ".join(each for each in (more, job.progress, job.error) if each)
    return f"job {job.number} of {total} {job.status}{took}{where}: {job.what}{f'; {said}' if said else ''}"


def overview(jobs: list[Job], now: float) -> str:
    """`12 done, 2 running, 1 failed, 25 to do; about 25 min left`."""
    told = ", ".join(f"{count} {status}" for status, count in counts(jobs).items()) or "no jobs"
    left = seconds_left(jobs, now)
    return told if left is None else f"{told}; about {duration(left)} left"


def last_line(folder: Path) -> str:
    """What a sweep says when it ends: `2 done in SWEEP, 1 failed: FOLDER`; nothing of one that never began."""
    if not (folder / MANIFEST).exists():
        return ""
    by_status: dict[str, list[str]] = {}
    for job in jobs_of(folder, read_manifest(folder)):
        by_status.setdefault(job.status, []).append(str(job.folder or job.what))
    counted = [f"{len(by_status.pop('done', []))} done in {folder}"]
    return ", ".join(counted + [f"{len(places)} {status}: {', '.join(places)}" for status, places in by_status.items()])


def status_lines(folder: Path, jobs: list[Job], now: float) -> list[str]:
    """What `oneshot-fl status` prints: the sweep, what runs, and what has to be run again with its command."""
    lines = [f"{folder}: {len(jobs)} jobs: {overview(jobs, now)}"]
    lines += [one_job(job, len(jobs)) for job in jobs if job.status == "running"]
    for job in jobs:
        if job.status in NOT_DONE:
            lines += [one_job(job, len(jobs)), f"  {job.command}"]
    return lines


def without_folder(overrides: Iterable[str]) -> list[str]:
    """The overrides of a sweep's command without those that say where it lies and which of its jobs to run."""
    own = ("hydra.sweep.dir=", "hydra.launcher.only=")
    return [word for word in overrides if not word.lstrip("+").startswith(own)]
