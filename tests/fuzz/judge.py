"""What becomes of a line: composed and checked in this process as the program does, in children that may be killed."""

import multiprocessing
import resource
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.checks import check
from oneshot_fl.config.explain import explain
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config
from tests.fuzz.wrong_lines import Case

PATIENCE = 60.0
"""Seconds until a line counts as one that hangs."""
MEMORY = 24 * 2**30
"""Bytes of address space of a child: what eats memory fails instead of taking the machine along."""


class Verdict(NamedTuple):
    """How a line ended: `plain`, `traceback`, `hang` or `accepted`, with its last words."""

    how: str
    words: str


def judge(case: Case) -> Verdict:
    """Compose and check one line."""
    try:
        cfg = compose_config(*case.base, *case.line)
    except Exception as error:
        return _spoken(explain(error, case.line))
    try:
        check(cfg)
    except OneshotError as error:
        return _spoken(str(error))
    except (HydraException, OmegaConfBaseException) as error:
        return _spoken(explain(error))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        where = " < ".join(f"{frame.filename.rsplit('/', 2)[-1]}:{frame.lineno}" for frame in reversed(frames))
        return Verdict("traceback", f"{type(error).__name__}: {' '.join(str(error).split())[:150]} ({where})")
    return Verdict("accepted", "")


def _spoken(line: str) -> Verdict:
    """A complaint counts as plain where it is one line that is not endless."""
    fine = "\n" not in line and 0 < len(line) < 1000
    return Verdict("plain" if fine else "traceback", line if fine else f"not one plain line: {line[:150]!r}")


def judge_all(cases: Sequence[Case]) -> list[Verdict]:
    """All verdicts; a child that is silent for too long is killed, and another goes on behind that line."""
    verdicts: list[Verdict] = []
    while len(verdicts) < len(cases):
        verdicts += _judge_in_child(cases[len(verdicts) :])
    return verdicts


def _judge_in_child(cases: Sequence[Case]) -> list[Verdict]:
    context: Any = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(cases, sender))
    child.start()
    sender.close()
    verdicts: list[Verdict] = []
    while len(verdicts) < len(cases):
        if not receiver.poll(PATIENCE):
            verdicts.append(Verdict("hang", f"silent for {PATIENCE:.0f} s"))
            break
        try:
            verdicts.append(Verdict(*receiver.recv()))
        except EOFError:
            verdicts.append(Verdict("traceback", "the process died"))
            break
    child.kill()
    child.join()
    return verdicts


def _child(cases: Sequence[Case], sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for case in cases:
        sender.send(tuple(judge(case)))
