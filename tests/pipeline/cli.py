"""The program as a process of its own."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from oneshot_fl.cli import main
from tests.composing import TINY

FORKED = multiprocessing.get_context("forkserver")
"""Processes that begin with libraries loaded, which takes longer than most of what is asked of them."""
FORKED.set_forkserver_preload(["oneshot_fl.pipeline", "oneshot_fl.launchers.hydra_side", "tests.pipeline.cli"])


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "oneshot_fl", *arguments]


def environment(store: Path) -> dict[str, str]:
    return os.environ | {"ONESHOT_FL_STORE": str(store), "COLUMNS": "120", "OMP_NUM_THREADS": "1"}


def call(
    *arguments: str, cwd: Path, tiny: bool = True, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `oneshot-fl` (so also `python -m oneshot_fl`) with these arguments ends with and prints."""
    words, printed = [*arguments, *(TINY if tiny else ())], [cwd / ".out", cwd / ".err"]
    process = FORKED.Process(target=_program, args=(words, cwd, variables or environment(cwd / "store"), printed))
    process.start()
    process.join(timeout=240)
    if process.exitcode is None:
        process.kill()
        pytest.fail("it does not end")
    texts = [path.read_text() for path in printed]
    for path in printed:
        path.unlink()
    return subprocess.CompletedProcess(words, process.exitcode, *texts)


def _program(words: list[str], cwd: Path, variables: Mapping[str, str], printed: list[Path]) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(cwd)
    for number, path in enumerate(printed, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = ["oneshot_fl", *words]
    sys.path[:0] = ["", *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    main()
