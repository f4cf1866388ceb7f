"""The program as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.composing import TINY


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "oneshot_fl", *arguments]


def environment(store: Path) -> dict[str, str]:
    return os.environ | {"ONESHOT_FL_STORE": str(store), "COLUMNS": "120", "OMP_NUM_THREADS": "1"}


def call(*arguments: str, cwd: Path, tiny: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, *(TINY if tiny else ())),
        cwd=cwd,
        env=environment(cwd / "store"),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
