"""Ways in which files get damaged, for tests of what reads them."""

import shutil
from collections.abc import Callable
from pathlib import Path


def flip(path: Path, bit: int) -> None:
    """Turn one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def become(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else where a file or folder is."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)
