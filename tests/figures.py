"""Figures that take no time."""

from pathlib import Path
from typing import Any


def unmade(_make: Any, path: Path, _also: str, _note: Any) -> Path:
    """Instead of `plots._drawn`: a picture of one pixel, and nothing is laid out."""
    blank(None, path)
    return path


def blank(_figure: Any, path: Path, **_options: Any) -> None:
    """Instead of `Figure.savefig`: a picture of one pixel."""
    from PIL import Image

    Image.new("L", (1, 1)).save(path)
