"""Figures of a run, drawn without a display."""

from collections.abc import Callable
from functools import partial
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


def draw_all(
    folder: Path,
    *,
    counts: np.ndarray,
    class_names: tuple[str, ...],
    guidance: Tensor | None,
    history: list[dict[str, Any]],
    ensembles: dict[str, float],
    confusion: np.ndarray,
    synthetic: tuple[Tensor, Tensor] | None,
    recitals: tuple[Recital, ...],
    note: Callable[[str], None],
) -> dict[str, Path]:
    """Draw what a run has, as PNG files in `folder`; by then the results are there, so no figure ever fails a run.

    Args:
        counts: samples of every class at every client, `[m, c]`.
        guidance: U `[c, m]`, where the clients were stratified.
        history: the server's rounds, each with `round` and `accuracy`; empty where there were none.
        ensembles: test accuracies by name.
        confusion: the server's, test images `[c, c]` of the row's class called the column's.
        synthetic: images, uint8 `[n, C, H, W]`, and their labels.
        recitals: of every client, where a part of the method needed them.
        note: is called with one line about a figure that could not be drawn.
    """
    figures: dict[str, Callable[[], Figure]] = {
        "partition": partial(partition_bubbles, counts, class_names),
        "confusion": partial(confusion_map, confusion, class_names),
    }
    if guidance is not None:
        figures["guidance"] = partial(guidance_maps, guidance)
    if history:
        figures["accuracy"] = partial(accuracy_curve, history, ensembles)
    if synthetic:
        figures["synthetic"] = partial(image_grid, *synthetic, class_names)
    if recitals:
        figures["recitals"] = partial(recital_grid, recitals)
    paths = {name: _drawn(make, folder / f"{name}.png", note) for name, make in figures.items()}
    return {name: path for name, path in paths.items() if path is not None}


def _drawn(make: "Callable[[], Figure]", path: Path, note: Callable[[str], None]) -> Path | None:
    try:
        return save(make(), path)
    except Exception as error:  # a drawing library's, a font's, the disk's: the line says which
        note(f"{path.name} could not be drawn ({type(error).__name__}: {' '.join(str(error).split())})")
        return None


def literal(text: str) -> str:
    """A user's text for matplotlib, which takes what is between two dollar signs for mathematics."""
    return text.replace("$", r"\$")


def new_figure(width: float, height: float) -> "tuple[Figure, Any]":
    """A figure of that many inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure and say where."""
    figure.savefig(path, dpi=110)
    return path


def partition_bubbles(counts: np.ndarray, class_names: tuple[str, ...]) -> "Figure":
    """Samples of every class at every client, `[m, c]`: the area of a bubble is the count (FedHydra, Fig. 9)."""
    clients, classes = counts.shape
    figure, axes = new_figure(2 + 0.45 * classes, 1.5 + 0.45 * clients)
    k, j = np.nonzero(counts)
    axes.scatter(j, k, s=500 * counts[k, j] / counts.max(), alpha=0.7)
    axes.set(xlabel="class", ylabel="client", xlim=(-0.6, classes - 0.4), ylim=(clients - 0.4, -0.6))
    _name_classes(axes, class_names)
    axes.set_yticks(range(clients))
    axes.grid(alpha=0.2)
    return figure


def _name_classes(axes: "Axes", class_names: tuple[str, ...]) -> None:
    """Along the horizontal axis, upright where they are long."""
    names = [literal(name) for name in class_names]
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, class_names)) > 2 else 0)


def confusion_map(confusion: np.ndarray, class_names: tuple[str, ...]) -> "Figure":
    """Shares of every class's test images by what they were called, of counts `[c, c]`; a class without any is grey."""
    classes, images = len(confusion), confusion.sum(axis=1, keepdims=True)
    side = min(0.45 * classes, 20)
    figure, axes = new_figure(2 + side, 1.5 + side)
    axes.set_facecolor("lightgrey")
    shares = np.where(images > 0, confusion / np.maximum(images, 1), np.nan)
    axes.imshow(shares, vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="called", ylabel="class")
    _name_classes(axes, class_names)
    axes.set_yticks(range(classes), [literal(name) for name in class_names])
    if confusion.size <= ANNOTATED_CELLS:
        for (j, called), count in np.ndenumerate(confusion):
            axes.text(
                called, j, str(count), ha="center", va="center", fontsize=7, color=_legible(shares.item(j, called))
            )
    return figure


def _legible(value: float) -> str:
    """Black or white, whichever shows on a value's colour."""
    return "w" if value <= 0.6 else "k"


def guidance_maps(U: Tensor) -> "Figure":
    """U_r and U_c of a guidance matrix `[c, m]`, drawn client by class (FedHydra, Fig. 5b)."""
    classes, clients = U.shape
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 + 0.9 * classes, 1.5 + 0.4 * clients), layout="constrained")
    for axes, weights, name in zip(
        figure.subplots(1, 2), (normalised_rows(U), normalised_columns(U)), ("$U_r$", "$U_c$"), strict=True
    ):
        _heat_map(axes, weights.T.numpy(), name)
    return figure


def _heat_map(axes: "Axes", values: np.ndarray, title: str) -> None:
    axes.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axes.set(title=title, xlabel="class", ylabel="client", xticks=range(values.shape[1]), yticks=range(values.shape[0]))
    if values.size <= ANNOTATED_CELLS:
        for (k, j), value in np.ndenumerate(values):
            axes.text(j, k, f"{value:.2f}", ha="center", va="center", fontsize=7, color=_legible(value))


def accuracy_curve(history: list[dict[str, Any]], ensembles: dict[str, float]) -> "Figure":
    """The server's test accuracy against rounds, with the ensembles as lines (FedHydra, Figs. 3, 4, 6)."""
    figure, axes = new_figure(6, 4)
    axes.plot([row["round"] for row in history], [row["accuracy"] for row in history], marker=".", label="server")
    for number, (name, accuracy) in enumerate(ensembles.items(), start=1):
        axes.axhline(accuracy, color=f"C{number}", linestyle="--", linewidth=1, label=literal(f"ensemble: {name}"))
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
    axes.grid(alpha=0.2)
    axes.legend(fontsize=8)
    return figure


def recital_grid(recitals: tuple[Recital, ...], *, columns: int = 20) -> "Figure":
    """One row per client: what its model recites, from its first class to its last."""
    ordered = [recital.images[recital.labels.argsort(stable=True)] for recital in recitals]
    clients = torch.arange(len(ordered)).repeat_interleave(torch.tensor([len(images) for images in ordered]))
    names = tuple(f"client {k}" for k in range(len(ordered)))
    return image_grid(torch.cat(ordered), clients, names, columns=columns)


def image_grid(images: Tensor, labels: Tensor, class_names: tuple[str, ...], *, columns: int = 10) -> "Figure":
    """One row per class of images, uint8 `[n, C, H, W]`, at most `columns` of them, evenly spaced (FedMHO, Fig. 9).

    Only the first `GRID_ROWS` classes get one.
    """
    present = labels.unique().tolist()[:GRID_ROWS]
    names = [literal(class_names[label]) for label in present]
    figure, axes = new_figure(0.6 * columns + 0.5 + 0.1 * max(map(len, names)), 0.6 * len(present) + 0.2)
    size = images.shape[-1] + 1
    canvas = np.ones((len(present) * size, columns * size, 3))
    for row, label in enumerate(present):
        own = images[labels == label]
        for column, image in enumerate(own[evenly_spaced(len(own), columns)]):
            top, left = row * size, column * size
            canvas[top : top + size - 1, left : left + size - 1] = image.permute(1, 2, 0).numpy() / 255
    axes.imshow(canvas, interpolation="nearest")
    axes.set_yticks([size * row + size / 2 for row in range(len(present))], names)
    axes.set_xticks([])
    return figure
