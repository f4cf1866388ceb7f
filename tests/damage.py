"""Ways in which files get damaged, for tests of what reads them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def flip(path: Path, bit: int) -> None:
    """Turn one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def become(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else where a file or folder is."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


def forbid(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """Folders whose paths end so cannot be listed, as any user but root would see it."""
    scandir = os.scandir

    def forbidden(path):
        if str(path).endswith(ending):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidden)
