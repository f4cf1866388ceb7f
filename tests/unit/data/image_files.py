"""Tiny image files for the tests of folders of images."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_image(path: Path, value: int, size: int = 8) -> None:
    """One square image whose pixels all have the same value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size, size, 3), value, dtype=np.uint8)).save(path)
