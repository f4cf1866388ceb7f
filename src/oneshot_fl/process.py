"""How this process prints, shares the cores, keeps its memory (the user's own settings win), and is stopped."""

import codecs
import ctypes
import errno
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

MALLOPT = {"M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 2**26), "M_MMAP_THRESHOLD": (-3, 2**31 - 1)}
"""glibc's numbers of what `mallopt` sets, and what to."""


def say(line: str) -> None:
    """A line of the program's own, on stderr."""
    print(f"oneshot_fl: {line}", file=sys.stderr)


_turn = threading.RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """What threads of one process would disturb each other in, who share torch's random numbers and Hydra's state."""
    with _turn:
        yield


def print_whatever_it_is() -> None:
    """Letters that stdout cannot encode, as of file names that are not UTF-8, are printed as escapes (`\\udce9`).

    One of them would else end the program and lose all lines after it. Where stdout gives such names back byte by byte
    (`surrogateescape`) it goes on doing so, and escapes the others.
    """
    codecs.register_error("bytes_or_escapes", _bytes_or_escapes)
    instead = {"strict": "backslashreplace", "surrogateescape": "bytes_or_escapes"}
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in instead:
        sys.stdout.reconfigure(errors=instead[sys.stdout.errors])


def _bytes_or_escapes(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.backslashreplace_errors(error)


def share_the_cores() -> None:
    """Idle OpenMP threads give their core away soon; to be called before torch is loaded.

    With the default of 300,000 spins a generator step on 8x8 images took 0.9 s beside another run on the same two
    cores, with 5,000 spins 0.065 s; alone both took about 0.011 s.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "5000"


def keep_freed_memory() -> None:
    """Freed memory is used again instead of being given back and cleared anew; only glibc can be told so.

    A generator step of five cnn3 at 3x32x32 touched 330,000 new pages; without them it takes three quarters of the
    time and 5% more memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt and not any(name.startswith("MALLOC_") for name in os.environ):
        for parameter, value in MALLOPT.values():
            mallopt(parameter, value)


@contextmanager
def again_and_again(act: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call something every so many seconds, in a thread, as long as the block lasts; it must not raise."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@cache  # once a process
def end_with(parent: int, *, patience: float) -> None:
    """Have this process end once the one that began it is gone; nothing is done where it is that one itself.

    Args:
        parent: the other's id.
        patience: seconds that it has between being asked to stop, as SIGTERM does, and being ended.
    """
    if parent != os.getpid():
        threading.Thread(target=_outlived, args=(parent, patience), name="parent", daemon=True).start()


def _outlived(parent: int, patience: float) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience)
    os.kill(os.getpid(), signal.SIGKILL)


STOPPING = (signal.SIGINT, signal.SIGTERM)
"""What Ctrl-C, and what schedulers and `kill` send."""
PATIENCE = 5.0
"""Seconds in which more of them are taken for the same wish: a terminal and a wrapper may both pass one on."""
UNREAD = 141
"""The exit code of a program whose output nobody reads any more, as shells have it."""
INSIST = 1.0
"""Seconds after which a stop that somebody caught and dropped is raised again."""


class Interrupted(BaseException):
    """The process was asked to stop. No `Exception`, so that nobody takes it for a failure and goes on.

    Nor a `KeyboardInterrupt`, at which a Trainer ends the process by itself.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__("interrupted; the same command resumes")
        self.signal_number = signal_number

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM, as shells have it."""
        return 128 + self.signal_number


_asked: list[int] = []
"""The signal that asked this process to stop, once one did."""


def interruption() -> Interrupted | None:
    """The stop that this process was asked for; None if it was not.

    Whatever fails after that failed because of it: an extension module in whose call the signal came may make another
    error of the exception.
    """
    return Interrupted(_asked[0]) if _asked else None


@contextmanager
def stoppable(*, resumes: bool = True) -> Iterator[None]:
    """Inside the block SIGINT and SIGTERM raise `Interrupted`; one that leaves it ends the process with its line.

    To be entered in the main thread before anything is imported that takes time. A Trainer keeps these handlers and
    passes the exception on. After `PATIENCE` another signal ends the process at once, whatever it is doing.

    Args:
        resumes: whether the same command goes on where it was, which the line says then.
    """
    _asked.clear()
    stop = _Stop()
    handlers: dict[int, object] = {**dict.fromkeys(STOPPING, stop), signal.SIGALRM: stop.insist}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}  # type: ignore[arg-type]
    try:
        with _all_written(), _swallowed_quietly():
            yield
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            sys.exit(UNREAD)
        if _no_room(error):
            say(f"the output cannot be written ({os.strerror(errno.ENOSPC)}); make room where it goes")
            sys.exit(2)
        interrupted = interruption()
        if interrupted is None or (isinstance(error, SystemExit) and error.code == interrupted.exit_code):
            raise  # not stopped, or told of by a block inside this one
        say(str(interrupted) if resumes else "interrupted")
        sys.exit(interrupted.exit_code)
    finally:
        stop.rest()
        if stop.number:  # the process is about to end, and another signal must not break into that
            before |= dict.fromkeys(STOPPING, signal.SIG_IGN)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _all_written() -> Iterator[None]:
    """What is printed inside the block is written when it ends: what fails at the end of a program nobody can tell."""
    try:
        yield
    finally:
        if sys.stdout is not None:  # as where it was closed
            sys.stdout.flush()


@contextmanager
def _swallowed_quietly() -> Iterator[None]:
    """Inside the block Python is silent of a stop that it cannot raise, as in `__del__`: `insist` raises it again."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda told: None if issubclass(told.exc_type, Interrupted) else before(told)
    try:
        yield
    finally:
        sys.unraisablehook = before


def _no_room(error: BaseException) -> bool:
    """Whether a disk is full, as that of stdout: files say their names (`disk.writing`). Nothing more is tried then."""
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if full:
        _drop_output()
    return full


def _nobody_reads() -> bool:
    """Whether whoever read our output has seen enough, as `head` has; Python must not try to write the rest then."""
    output = select.poll()
    output.register(sys.stdout, 0)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    _drop_output()
    return True


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Stop:
    """The handlers; the alarm that insists is set up with them, because a Trainer puts back what it found."""

    def __init__(self) -> None:
        self.number, self.asked = 0, 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self.asked = number, time.monotonic()
            _asked.append(number)
            signal.setitimer(signal.ITIMER_REAL, INSIST, INSIST)
            raise Interrupted(number)
        if time.monotonic() - self.asked > PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def insist(self, number: int, frame: FrameType | None) -> None:
        """Raise it again unless it is on its way, through a `finally` that takes long."""
        if not _on_its_way(sys.exception()):
            raise Interrupted(self.number)

    def rest(self) -> None:
        """No more alarms."""
        if self.number:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _on_its_way(handled: BaseException | None) -> bool:
    """Whether what is being handled is a stop, or came up while one was."""
    while handled is not None and not isinstance(handled, Interrupted):
        handled = handled.__context__
    return handled is not None
