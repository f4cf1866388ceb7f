"""The loop that every launcher shares: keep the engine full, say what happens, restart a job that died once."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from oneshot_fl.errors import named_line
from oneshot_fl.launchers.engine import Engine, Outcome, Pending, Task
from oneshot_fl.sweeps.lines import one_job, overview
from oneshot_fl.sweeps.manifest import Manifest
from oneshot_fl.sweeps.search import told
from oneshot_fl.sweeps.state import NOT_DONE, Job, as_job, jobs_of, read_trace, unseen
from oneshot_fl.tracking.progress import HEARTBEAT

ATTEMPTS = 2
"""Times that a job is begun whose process dies."""
LOOK_AT_TRACES = 2.0
"""Seconds between two looks at what running jobs write."""


@dataclass
class Talk:
    """What the terminal, or a log file, is told while a sweep runs."""

    folder: Path
    manifest: Manifest
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
    waits_for: Callable[[], str] = lambda: ""
    """`Engine.waits_for`"""
    beat: float = field(default_factory=time.monotonic)
    looked: float = 0.0
    known: set[tuple[int, int]] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    """Jobs that this sweep has yet to bring to an end; an earlier one may have left a trace of them."""
    done: set[int] = field(default_factory=set)
    """Those that it ran, or found to be done."""

    def done_before(self, number: int, outcome: Outcome, *, arithmetic: str) -> None:
        """A job that need not run, and where that may be otherwise than here, how it was computed."""
        self._note(number, outcome)
        job = unseen(number, self.manifest)
        on = f" on {arithmetic}" if arithmetic else ""
        error = f"; {outcome.error}" if outcome.error else ""
        self.say(f"job {number} of {len(self.manifest.jobs)} was done before{on}: {job.what}{error}")

    def ended(self, task: Task, outcome: Outcome) -> None:
        """A job's last line."""
        self._note(task.number, outcome)
        more = told(outcome.value, self.manifest.sweeper) if outcome.value is not None else ""
        job = self._job(task)
        status = "killed" if outcome.status == "died" else outcome.status
        error = job.error or outcome.error
        self.say(one_job(replace(job, status=status, error=error), len(self.manifest.jobs), more))

    def _note(self, number: int, outcome: Outcome) -> None:
        self.left.discard(number)
        if outcome.status == "done":
            self.done.add(number)

    def look(self, running: list[Task]) -> None:
        """Say of each job that has begun where it runs, and once a minute how all of them stand."""
        now = time.monotonic()
        if now - self.looked >= LOOK_AT_TRACES:
            self.looked = now
            for task in running:
                self._begun(task)
        if now - self.beat >= HEARTBEAT:
            self.beat = now
            jobs = self._jobs()
            self.say("; ".join(each for each in (overview(jobs, time.time()), self.waits_for()) if each))
            for job in jobs:
                if job.status == "running" and job.progress:
                    self.say(f"  {one_job(job, len(jobs))}")

    def _jobs(self) -> list[Job]:
        """All jobs; what ended badly in an earlier sweep and waits to be begun again is to do."""
        return [
            replace(job, status="to do") if job.number in self.left and job.status in NOT_DONE else job
            for job in jobs_of(self.folder, self.manifest)
        ]

    def _begun(self, task: Task) -> None:
        attempt = (task.number, task.attempt)
        if attempt not in self.known and (job := self._job(task)).status == "running" and job.device:
            self.known.add(attempt)
            self.say(one_job(replace(job, progress=""), len(self.manifest.jobs)))

    def _job(self, task: Task) -> Job:
        return as_job(task.number, self.manifest, task.folder, read_trace(task.folder), time.time())


def run_all(engine: Engine, tasks: Iterator[Task], talk: Talk, died: Callable[[Task, str], None]) -> dict[int, Outcome]:
    """Run tasks as they come, as many at once as the engine takes; how each ended, by its number.

    A job whose process dies is begun once more; its clients and rounds up to then are in the store.

    Args:
        engine: stopped where this program is; else it stays as it is, for a sweeper's next batch.
        died: called with a job whose process died every time, and how.
    """
    running: list[tuple[Task, Pending]] = []
    again: list[Task] = []
    outcomes: dict[int, Outcome] = {}
    try:
        while True:
            room = max(engine.at_once - len(running), 0)  # an engine may take fewer than it did
            fresh = [*again[:room], *_next(tasks, room - len(again))]
            again = again[room:]
            running += zip(fresh, engine.submit(fresh) if fresh else (), strict=True)
            if not running:
                return outcomes
            ended = [each for each in running if each[1].done()]
            running = [each for each in running if each not in ended]
            for task, pending in ended:
                outcome = _outcome(pending)
                if outcome.status == "died" and task.attempt < ATTEMPTS:
                    talk.say(f"job {task.number}: its process died ({outcome.error}); taken up again")
                    again.append(replace(task, attempt=task.attempt + 1))
                    continue
                if outcome.status == "died":
                    died(task, outcome.error)
                outcomes[task.number] = outcome
                talk.ended(task, outcome)
            if not ended:
                talk.look([task for task, _ in running])
                time.sleep(engine.pause)
    except BaseException:
        engine.stop()
        raise


def _next(tasks: Iterator[Task], count: int) -> list[Task]:
    """At most `count` more; no more are made than there is room for, because each is composed then."""
    return [task for _, task in zip(range(max(count, 0)), tasks, strict=False)]


def _outcome(pending: Pending) -> Outcome:
    try:
        return pending.result()
    except Exception as error:  # whatever an engine raises where a process did not come back
        return Outcome("died", error=named_line(error))
