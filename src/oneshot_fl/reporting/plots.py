"""Figures of a run, drawn without a display."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from oneshot_fl.data.spread import evenly_spaced
from oneshot_fl.methods.fedhydra import normalised_columns, normalised_rows
from oneshot_fl.parts.uploads import Recital

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ANNOTATED_CELLS = 200
"""Heat maps up to this many cells carry their numbers."""
GRID_ROWS = 50
"""Classes in a grid of images: all of EMNIST's 47, not all of CIFAR-100's."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which colour-blind readers tell apart, without yellow, which white swallows."""
DASHES: tuple[Any, ...] = ("-", (0, (7, 3)), (0, (2, 2)), (0, (9, 3, 2, 3)))
LONGEST_NAME = 40
"""Characters of a class's name that are shown; of a longer one, its beginning and its end."""
BUBBLE = 500
"""Area of the largest bubble, in square points, where cells have their whole size."""
LONGEST_SIDE = 20.0
"""Inches that cells take at the most, in a row or a column; of more than fit, each is smaller."""
MOST_NAMED = 60
"""Classes or clients along an axis; of more only every second is named, or every third."""
Labelled = tuple[Tensor, Tensor]
"""Images, uint8 `[n, C, H, W]`, and their labels."""


def draw_all(
    folder: Path,
    *,
    counts: np.ndarray,
    class_names: tuple[str, ...],
    guidance: Tensor | None,
    history: list[dict[str, Any]],
    ensembles: dict[str, float],
    confusion: np.ndarray,
    synthetic: Labelled | None,
    real: Labelled,
    recitals: tuple[Recital, ...],
    used: Sequence[str],
    note: Callable[[str], None],
    also: str = "png",
) -> dict[str, Path]:
    """Draw what a run has, as PNG files in `folder`; by then the results are there, so no figure ever fails a run.

    Args:
        counts: samples of every class at every client, `[m, c]`.
        guidance: U `[c, m]`, where the clients were stratified.
        history: the server's rounds, each with `round` and `accuracy`; empty where there were none.
        ensembles: test accuracies by name.
        confusion: the server's, test images `[c, c]` of the row's class called the column's.
        synthetic: images that the server made, and their labels.
        real: images of the same classes, to hold them against.
        recitals: of every client in `used`, where a part of the method needed them.
        used: names of the clients with a classifier that the server used, in the order of `guidance` and `recitals`.
        note: is called with one line about a figure that could not be drawn.
        also: the format, `svg` or `pdf`, of a second file beside each PNG; `png`: there is none.
    """
    figures: dict[str, Callable[[], Figure]] = {
        "partition": partial(partition_bubbles, counts, class_names),
        "confusion": partial(confusion_map, confusion, class_names),
    }
    if guidance is not None:
        figures["guidance"] = partial(guidance_maps, guidance, class_names, used)
    if history:
        figures["accuracy"] = partial(accuracy_curve, history, ensembles)
    if synthetic:
        figures["synthetic"] = partial(synthetic_grid, synthetic, real, class_names)
    if recitals:
        figures["recitals"] = partial(recital_grid, recitals, used)
    paths = {name: _drawn(make, folder / f"{name}.png", also, note) for name, make in figures.items()}
    return {name: path for name, path in paths.items() if path is not None}


def _drawn(make: "Callable[[], Figure]", path: Path, also: str, note: Callable[[str], None]) -> Path | None:
    try:
        figure = make()
        if also != "png":
            save(figure, path.with_suffix(f".{also}"))
        return save(figure, path)
    except Exception as error:  # a drawing library's, a font's, the disk's: the line says which
        note(f"{path.name} could not be drawn ({type(error).__name__}: {' '.join(str(error).split())})")
        return None


def literal(text: str) -> str:
    """A user's text for matplotlib, which takes what is between two dollar signs for mathematics."""
    return text.replace("$", r"\$")


def _shown(name: str) -> str:
    """A class's name as it is drawn."""
    half = LONGEST_NAME // 2
    return literal(name if len(name) <= LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}")


def _room(class_names: Sequence[str]) -> float:
    """Inches that names take beyond those of eight characters, which every figure has room for."""
    return 0.09 * max(0, min(LONGEST_NAME, max(map(len, class_names))) - 8)


def new_figure(width: float, height: float) -> "tuple[Figure, Any]":
    """A figure of that many inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure and say where."""
    figure.savefig(path, dpi=110)
    return path


def line_styles() -> Iterator[dict[str, Any]]:
    """Colour, dashes and width of the first line, the second and so on; a later one leaves an earlier one visible."""
    for n in count():
        again, colour = divmod(n, len(COLOURS))
        dash = DASHES[(colour + again) % len(DASHES)]
        yield {"color": COLOURS[colour], "linestyle": dash, "linewidth": max(1.2, 3 - 0.25 * n)}


def partition_bubbles(counts: np.ndarray, class_names: tuple[str, ...]) -> "Figure":
    """Samples of every class at every client, `[m, c]`: the area of a bubble is the count (FedHydra, Fig. 9)."""
    clients, classes = counts.shape
    across, down = _side(0.45, classes), _side(0.45, clients)
    figure, axes = new_figure(max(4.8, 3.4 + across), 2.2 + down + _room(class_names))
    largest = BUBBLE * (min(across / classes, down / clients) / 0.45) ** 2
    k, j = np.nonzero(counts)
    bubbles = axes.scatter(j, k, s=largest * counts[k, j] / counts.max(), alpha=0.75, color=COLOURS[0], linewidths=0)
    axes.set(xlabel="class", ylabel="client", xlim=(-0.6, classes - 0.4), ylim=(clients - 0.4, -0.6))
    figure.suptitle("Training samples of each client by class; in all: right and top", fontsize=10)
    _name_classes(axes, class_names)
    axes.set_yticks(_named(clients))
    axes.grid(alpha=0.2)
    totals = axes.secondary_yaxis("right"), axes.secondary_xaxis("top")
    of_clients, of_classes = _named(clients), _named(classes)
    totals[0].set_yticks(of_clients, [str(total) for total in counts.sum(axis=1)[of_clients]])
    totals[1].set_xticks(of_classes, [str(total) for total in counts.sum(axis=0)[of_classes]], rotation=90, fontsize=8)
    for axis in totals:
        axis.tick_params(length=0)
    handles, labels = bubbles.legend_elements(
        "sizes", num=3, color=COLOURS[0], alpha=0.75, func=lambda area: area * counts.max() / largest
    )
    beside = 1 + 0.45 / max(across, 4.5)  # of the axes' width: room for the totals
    axes.legend(
        handles, labels, title="samples", loc="upper left", bbox_to_anchor=(beside, 1), labelspacing=1.3, frameon=False
    )
    return figure


def _name_classes(axes: "Axes", class_names: tuple[str, ...]) -> None:
    """Along the horizontal axis, upright where they are long."""
    there = _named(len(class_names))
    axes.set_xticks(
        there, [_shown(class_names[j]) for j in there], rotation=90 if max(map(len, class_names)) > 2 else 0
    )


def _side(cell: float, cells: int) -> float:
    """Inches of so many cells in a row."""
    return min(cell * cells, LONGEST_SIDE)


def _named(cells: int) -> range:
    """The cells of a row that are named."""
    return range(0, cells, -(-cells // MOST_NAMED))


def confusion_map(confusion: np.ndarray, class_names: tuple[str, ...]) -> "Figure":
    """Shares of every class's test images by what they were called, of counts `[c, c]`; a class without any is grey."""
    classes, images = len(confusion), confusion.sum(axis=1, keepdims=True)
    side, room = _side(0.45, classes), _room(class_names)
    figure, axes = new_figure(max(4.8, 3 + side + room), 1.8 + side + room)
    axes.set_facecolor("lightgrey")
    shares = np.where(images > 0, confusion / np.maximum(images, 1), np.nan)
    picture = axes.imshow(shares, vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="called", ylabel="class")
    figure.suptitle("Test images of each class by what the server calls them", fontsize=10)
    figure.colorbar(picture, ax=axes, label="share of the class", shrink=0.8)
    _name_classes(axes, class_names)
    axes.set_yticks(_named(classes), [_shown(class_names[j]) for j in _named(classes)])
    if confusion.size <= ANNOTATED_CELLS:
        for (j, called), count in np.ndenumerate(confusion):
            axes.text(
                called, j, str(count), ha="center", va="center", fontsize=7, color=_legible(shares.item(j, called))
            )
    return figure


def _legible(value: float) -> str:
    """Black or white, whichever shows on a value's colour."""
    return "w" if value <= 0.6 else "k"


def guidance_maps(U: Tensor, class_names: tuple[str, ...], used: Sequence[str]) -> "Figure":
    """U_r and U_c of a guidance matrix `[c, m]`, drawn client by class (FedHydra, Fig. 5b); `used` names them."""
    classes, clients = U.shape
    from matplotlib.figure import Figure

    size = max(7.6, 4 + 2 * _side(0.45, classes)), 2 + _side(0.4, clients) + _room(class_names)
    figure = Figure(figsize=size, layout="constrained")
    maps = {
        "$U_r$: of each class, shares of the clients": normalised_rows(U),
        "$U_c$: of each client, shares of the classes": normalised_columns(U),
    }
    both = figure.subplots(1, 2)
    for axes, (title, weights) in zip(both, maps.items(), strict=True):
        picture = _heat_map(axes, weights.T.numpy(), title, class_names, used)
    figure.colorbar(picture, ax=both, label="share")
    return figure


def _heat_map(axes: "Axes", values: np.ndarray, title: str, class_names: tuple[str, ...], used: Sequence[str]) -> Any:
    picture = axes.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axes.set(xlabel="class", ylabel="client")
    there = _named(len(used))
    axes.set_yticks(there, [literal(used[k].removeprefix("client ")) for k in there])
    axes.set_title(title, fontsize=10)
    _name_classes(axes, class_names)
    if values.size <= ANNOTATED_CELLS:
        for (k, j), value in np.ndenumerate(values):
            axes.text(j, k, f"{value:.2f}", ha="center", va="center", fontsize=7, color=_legible(value))
    return picture


def accuracy_curve(history: list[dict[str, Any]], ensembles: dict[str, float]) -> "Figure":
    """The server's test accuracy against rounds, with the ensembles as lines (FedHydra, Figs. 3, 4, 6).

    Ensembles of one accuracy share a line.
    """
    figure, axes = new_figure(7, 4)
    server, *others = zip(line_styles(), ["server", *_alike(ensembles)], strict=False)
    axes.plot(
        [row["round"] for row in history], [row["accuracy"] for row in history], marker=".", label="server", **server[0]
    )
    for style, names in others:
        label = f"ensemble: {', '.join(names)} ({ensembles[names[0]]:.1%})"
        axes.axhline(ensembles[names[0]], **{**style, "linewidth": 1.3}, label=literal(label))
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
    axes.set_title("The server's test accuracy over rounds", fontsize=10)
    whole_numbers(axes)
    axes.grid(alpha=0.2)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2, frameon=False)
    return figure


def _alike(values: dict[str, float]) -> list[list[str]]:
    """The names of equal values together."""
    groups: dict[float, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(round(value, 4), []).append(name)
    return list(groups.values())


def whole_numbers(axes: "Axes") -> None:
    """Ticks of rounds, of which there is no half."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def recital_grid(recitals: tuple[Recital, ...], used: Sequence[str], *, columns: int = 20) -> "Figure":
    """One row per client, which `used` names: what its model recites, from its first class to its last."""
    ordered = [recital.images[recital.labels.argsort(stable=True)] for recital in recitals]
    clients = torch.arange(len(ordered)).repeat_interleave(torch.tensor([len(images) for images in ordered]))
    blocks = {"what each client's model recites, from its first class to its last": (torch.cat(ordered), clients)}
    return image_grid(blocks, tuple(used), columns=columns)


def synthetic_grid(synthetic: Labelled, real: Labelled, class_names: tuple[str, ...]) -> "Figure":
    """Images that the server made, and real ones of the same classes beside them (FedMHO, Fig. 9)."""
    return image_grid({"synthetic, last round": synthetic, "real": real}, class_names)


def image_grid(blocks: dict[str, Labelled], class_names: tuple[str, ...], *, columns: int = 10) -> "Figure":
    """Blocks side by side, in each a row per class of at most `columns` images, evenly spaced.

    The classes are the first block's, at most `GRID_ROWS` of them.
    """
    first, labels = next(iter(blocks.values()))
    present = labels.unique().tolist()[:GRID_ROWS]
    names = [_shown(class_names[label]) for label in present]
    width, size = len(blocks) * (columns + 1) - 1, first.shape[-1] + 1
    figure, axes = new_figure(0.5 * width + 0.5 + 0.1 * max(map(len, names)), 0.5 * len(present) + 0.6)
    canvas = np.ones((len(present) * size, width * size, 3))
    for place, block in enumerate(blocks.values()):
        _fill(canvas[:, place * (columns + 1) * size :], block, present, columns)
    axes.imshow(canvas, interpolation="nearest")
    axes.set_yticks([size * row + size / 2 for row in range(len(present))], names)
    middles = [((columns + 1) * place + columns / 2) * size for place in range(len(blocks))]
    axes.set_xticks(middles, [literal(title) for title in blocks])
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    return figure


def _fill(canvas: np.ndarray, block: Labelled, present: list[int], columns: int) -> None:
    """Draw a block's images at the left of a canvas `[rows, width, 3]` of white."""
    images, labels = block
    size = images.shape[-1] + 1
    for row, label in enumerate(present):
        own = images[labels == label]
        for column, image in enumerate(own[evenly_spaced(len(own), columns)]):
            top, left = row * size, column * size
            canvas[top : top + size - 1, left : left + size - 1] = image.permute(1, 2, 0).numpy() / 255
