"""The figures of runs inside the page, as many as fit."""

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oneshot_fl.reporting.tables.runs import Run

SHOWN = ("synthetic", "recitals")
"""Figures that only a run's folder holds; `BACKED` are drawn from the summary where that tells enough."""
BACKED = {"partition": "class_counts", "guidance": "guidance"}
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}
COLOURS = 64
"""Shades that a picture keeps in the page, which takes a third of the room."""


def names_of(run: Run) -> list[str]:
    """The figures of a run that the page shows as they are."""
    summary = run.summary or {}
    told = {"class_counts": summary.get("partition", {}).get("class_counts"), "guidance": summary.get("guidance")}
    return [*SHOWN, *(name for name, key in BACKED.items() if told[key] is None)]


def embedded(runs: Iterable[Run], *, budget: int) -> dict[int, dict[str, str]]:
    """Data URLs of figures by the run's place and the figure's name, until the next would exceed `budget` bytes.

    First come the runs of seeds that few others of their row have before them, so that every row shows one.
    """
    found: dict[int, dict[str, str]] = {}
    for place, run in _one_of_each_first(runs):
        for path in figures_of(run):
            if (url := _data_url(path)) is None:
                continue
            if len(url) > budget:
                return found
            budget -= len(url)
            found.setdefault(place, {})[path.stem] = url
    return found


def figures_of(run: Run) -> list[Path]:
    """The files of a run's figures that can be shown on a page."""
    if run.folder is None:
        return []
    paths = (run.folder / f"{name}{kind}" for name in names_of(run) for kind in KINDS)
    return [path for path in paths if path.is_file()]


def _one_of_each_first(runs: Iterable[Run]) -> list[tuple[int, Run]]:
    seen: dict[Any, int] = {}
    ranked = []
    for place, run in enumerate(runs):
        row = (run.data, run.partition, run.spread, run.label)
        seen[row] = seen.get(row, 0) + 1
        ranked.append((seen[row], place, run))
    return [(place, run) for _, place, run in sorted(ranked, key=lambda each: each[:2])]


def _data_url(path: Path) -> str | None:
    """None of a picture that is not whole: a run may be drawing it, or have been killed then."""
    try:
        content = _smaller(path) if path.suffix == ".png" else path.read_bytes()
    except (OSError, SyntaxError):  # Pillow's words for a file that ends early, and for a chunk that does
        return None
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(content).decode()}"


def _smaller(path: Path) -> bytes:
    """A PNG with fewer colours."""
    from PIL import Image

    with Image.open(path) as image:
        reduced = image.convert("RGB").quantize(COLOURS)
    content = io.BytesIO()
    reduced.save(content, format="PNG", optimize=True)
    return content.getvalue()
