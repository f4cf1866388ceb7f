"""The critical-difference picture: average ranks on a line, and bars over methods that do not differ significantly."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oneshot_fl.disk import make_folder, writing
from oneshot_fl.reporting.plots import COLOURS, literal, new_figure, save
from oneshot_fl.reporting.tables.ranking import Ranking

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN = 0.35
"""Ranks between the ends of the axis and the names."""


def draw_ranks(ranking: Ranking, folder: Path) -> Path:
    """`ranks.png` in the folder, which is made.

    Raises:
        OneshotError: the folder cannot be made or written.
    """
    make_folder(folder)
    with writing(str(folder)):
        return save(critical_differences(ranking), folder / "ranks.png")


def critical_differences(ranking: Ranking) -> "Figure":
    """Better methods on the left; their names are below the axis, the better half to its left (Demsar 2006, Fig. 1)."""
    names = list(ranking.ranks)
    figure, axes = new_figure(_width(names), 1.3 + 0.22 * (len(names) + 2 * len(ranking.alike)))
    below = 0.6 + 0.4 * len(ranking.alike)
    half = (len(names) + 1) // 2
    for n, name in enumerate(names[:half]):
        _name(axes, name, ranking.ranks[name], depth=below + 0.6 * n, end=1 - MARGIN, side="right")
    for n, name in enumerate(reversed(names[half:])):
        _name(axes, name, ranking.ranks[name], depth=below + 0.6 * n, end=len(names) + MARGIN, side="left")
    for n, alike in enumerate(ranking.alike):
        ends = [ranking.ranks[alike[0]] - 0.04, ranking.ranks[alike[-1]] + 0.04]
        axes.plot(ends, [0.35 + 0.4 * n] * 2, color=COLOURS[1], linewidth=4, solid_capstyle="butt")
    _axis(axes, ranking, deepest=below + 0.6 * half)
    return figure


ROOM = 28
"""Characters of a name beside the axis of a figure of 8 inches."""


def _width(names: Sequence[str]) -> float:
    """Inches, wider where names need it, which stand on both sides."""
    return 8 + 2 * 0.13 * max(0, max(map(len, names)) - ROOM)


def _name(axes: "Axes", name: str, rank: float, *, depth: float, end: float, side: str) -> None:
    """A line down from the rank, across to the end, and the name there."""
    axes.plot([rank, rank, end], [0, depth, depth], color=COLOURS[0], linewidth=1)
    text = f" {literal(name)} ({rank:.2f}) "
    axes.text(end, depth, text, ha=side, va="center", fontsize=9)


def _axis(axes: "Axes", ranking: Ranking, *, deepest: float) -> None:
    """Ranks on top, the critical difference as a bar above them."""
    count = len(ranking.ranks)
    axes.plot([1, 1 + ranking.critical], [-0.7, -0.7], color=COLOURS[-1], linewidth=2, solid_capstyle="butt")
    told = f" critical difference {ranking.critical:.2f}, {ranking.blocks} blocks"
    axes.text(1 + ranking.critical, -0.7, told, va="center", fontsize=8)
    axes.set(xlim=(1 - MARGIN - 1.6, count + MARGIN + 1.6), ylim=(deepest, -1.1), xticks=range(1, count + 1), yticks=[])
    axes.xaxis.set_ticks_position("top")
    axes.spines["top"].set(bounds=(1, count), position=("data", 0))
    axes.spines[["left", "right", "bottom"]].set_visible(False)
