"""The figures of runs inside the page, as many as fit."""

import base64
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from oneshot_fl.reporting.tables.run import Run

SHOWN = ("synthetic", "recitals")
"""Figures that only a run's folder holds; `BACKED` are drawn from the summary where that tells enough."""
BACKED = {"partition": "class_counts", "guidance": "guidance"}
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}
"""Of two files of one figure the first is taken."""
COLOURS = 64
"""Shades that a picture keeps in the page, which takes a third of the room."""
Row = tuple[int | None, str]
"""A setting's number, if it is known, and the label of a row in it."""


def names_of(run: Run) -> list[str]:
    """The figures of a run that the page shows as they are."""
    summary = run.summary or {}
    told = {"class_counts": summary.get("partition", {}).get("class_counts"), "guidance": summary.get("guidance")}
    return [*SHOWN, *(name for name, key in BACKED.items() if told[key] is None)]


def embedded(runs: Sequence[Run], rows: Sequence[Row], *, budget: int) -> dict[int, dict[str, str]]:
    """Data URLs of figures by the run's place and the figure's name, until the next would exceed `budget` bytes.

    First come the runs of seeds that few others of their row (one of `rows` for each run) have before them, so that
    every row of every setting shows one.
    """
    found: dict[int, dict[str, str]] = {}
    figures = [figures_of(run) for run in runs]
    for place in _one_of_each_first(figures, rows):
        for path in figures[place]:
            if (url := _data_url(path)) is None:
                continue
            if len(url) > budget:
                return found
            budget -= len(url)
            found.setdefault(place, {})[path.stem] = url
    return found


def figures_of(run: Run) -> list[Path]:
    """The files of a run's figures that can be shown on a page, one a figure: its PNG, else its SVG."""
    if run.folder is None:
        return []
    kinds = ([run.folder / f"{name}{kind}" for kind in KINDS] for name in names_of(run))
    return [path for paths in kinds if (path := next(filter(Path.is_file, paths), None))]


def _one_of_each_first(figures: Sequence[list[Path]], rows: Sequence[Row]) -> list[int]:
    """The places of the runs that have figures; one that has none, as it failed, stands for no seed of its row."""
    seen: Counter[Row] = Counter()
    ranked = []
    for place, row in enumerate(rows):
        if figures[place]:
            seen[row] += 1
            ranked.append((seen[row], place))
    return [place for _, place in sorted(ranked)]


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
