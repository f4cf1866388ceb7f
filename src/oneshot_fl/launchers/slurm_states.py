"""How Slurm's jobs stand: by its accounts, and where it keeps none, by its queue."""

import subprocess
from collections import Counter
from collections.abc import Container

from submitit.slurm.slurm import SlurmInfoWatcher

ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
"""States that a job does not leave again."""
GONE = "CANCELLED"
"""A job that the queue no longer lists: how it ended is forgotten after some minutes (Slurm's `MinJobAge`)."""
LOOK_INTO_ACCOUNTS = 600
LOOK_AT_QUEUE = 60
"""Seconds between two looks, once jobs are that old; at first they follow each other faster."""
PATIENCE = 60
"""Seconds within which a command of Slurm's answers, or is taken for one that does not."""


class Accounts(SlurmInfoWatcher):
    """What `sacct` knows; what is suspended, held or being set up, which submitit alone takes for ended, is not."""

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether a job has ended; `CANCELLED by 1000` is a state, too."""
        return self.get_state(job_id, mode=mode).partition(" ")[0] in ENDED


class Queue(Accounts):
    """What `squeue` knows, where no accounts are kept: there submitit alone never learns that a job has died."""

    def _make_command(self) -> list[str] | None:
        if self._registered <= self._finished:
            return None
        return ["squeue", "--me", "--array", "--noheader", "--states=all", "--format=%i %T"]

    def read_info(self, string: bytes | str) -> dict[str, dict[str, str]]:
        """The state of every job that was submitted here."""
        text = string if isinstance(string, str) else string.decode()
        listed = dict(line.split() for line in text.splitlines())
        return {job: {"State": listed.get(job, GONE)} for job in self._registered}


def watcher() -> Accounts:
    """What tells how jobs stand on the Slurm that is here; one asks for all of a sweep's at once."""
    return Accounts(delay_s=LOOK_INTO_ACCOUNTS) if _keeps_accounts() else Queue(delay_s=LOOK_AT_QUEUE)


def why_waiting(arrays: Container[str]) -> str:
    """`in Slurm's queue: 4 (PartitionTimeLimit)`: Slurm's reasons for jobs of these arrays that have not begun."""
    listed = _asked("squeue", "--me", "--array", "--noheader", "--states=PENDING", "--format=%F %r") or ""
    jobs = [line.strip().partition(" ") for line in listed.splitlines()]
    reasons = Counter(reason for array, _, reason in jobs if array in arrays)
    told = ", ".join(f"{count} ({reason})" for reason, count in reasons.items())
    return told and f"in Slurm's queue: {told}"


def _keeps_accounts() -> bool:
    return _asked("sacct", "--noheader", "--jobs=1") is not None


def _asked(*command: str) -> str | None:
    """What a command of Slurm's prints; None where this Slurm has none or does not answer."""
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None
