"""The code of a phase in the keys of what it wants, and in every process that makes it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from oneshot_fl.artifacts import Artifact
from oneshot_fl.disk import remove, writing
from oneshot_fl.errors import OneshotError
from oneshot_fl.recipe import digest_of
from oneshot_fl.store import Wanted


class OtherCodeError(OneshotError):
    """A process has read other code than the one that it works for."""


def keyed(wanted: Wanted, *modules: str) -> Wanted:
    """What a phase wants, with the code that makes it among its inputs.

    Whatever process makes it does so by that code or, with an `OtherCodeError`, not at all: a worker imports files as
    they are when it begins, or has imported them for an earlier run; and some are imported only while it is made.

    Args:
        wanted: with all other inputs; their `_target_`s count.
        modules: those that make it, the phase's own first.
    """
    inputs = {**wanted.inputs, "code": digest_of(modules[0], wanted.inputs, *modules[1:])}
    return replace(wanted, inputs=inputs, make=partial(_make, wanted.phase, inputs, modules, wanted.make))


def _make(
    phase: str,
    inputs: Mapping[str, Any],
    modules: tuple[str, ...],
    make: Callable[[Path], Artifact],
    work: Path,
) -> Artifact:
    if digest_of(modules[0], inputs, *modules[1:]) != inputs["code"]:
        raise OtherCodeError(
            f"{phase}: a worker would run other code than the program that it works for, as files were edited "
            "meanwhile; start the program again"
        )
    try:
        artifact = make(work)
    finally:
        if not (same := _is_code(modules, inputs)):
            with writing(str(work)):
                remove(work)  # a run of the code that it is named by must not go on with what other code began
    if not same:
        raise OtherCodeError(
            f"{phase}: files of code were edited while it was made, so it may be of other code than the run began "
            "with, and is not kept; start the program again"
        )
    return artifact


def _is_code(modules: tuple[str, ...], inputs: Mapping[str, Any]) -> bool:
    """Whether this process has imported no other code than what the inputs tell."""
    try:
        return digest_of(modules[0], inputs, *modules[1:]) == inputs["code"]
    except OneshotError:  # an imported file was written, or removed, since
        return False
