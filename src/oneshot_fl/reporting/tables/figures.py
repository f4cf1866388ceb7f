"""Figures over many runs: accuracy against rounds (FedHydra, Figs. 3, 4, 6), AE against SA (Fig. 7)."""

import math
import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oneshot_fl.disk import make_folder, writing
from oneshot_fl.reporting.plots import COLOURS, line_styles, literal, new_figure, save, whole_numbers
from oneshot_fl.reporting.tables.curves import curve_of
from oneshot_fl.reporting.tables.differences import below
from oneshot_fl.reporting.tables.estimates import estimate
from oneshot_fl.reporting.tables.measures import measure_of
from oneshot_fl.reporting.tables.own import comparable, names_of, rows_of, titles
from oneshot_fl.reporting.tables.pairing import Outcomes, outcomes, shared_seeds
from oneshot_fl.reporting.tables.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AGGREGATIONS = {"uniform": "AE", "stratified": "SA"}
"""FedHydra's names for the ensembles that Fig. 7 compares."""
LAST = measure_of("accuracy", which="last")
Bars = dict[str, list[float]]
"""AE and SA, each with the server's accuracies in the same seeds."""


def draw(runs: list[Run], folder: Path) -> list[Path]:
    """`rounds-N.png` for every group with rounds, `aggregation.png` where FedHydra ran with both AE and SA.

    Raises:
        OneshotError: the folder cannot be made or written.
    """
    make_folder(folder)
    with writing(str(folder)):
        return _drawn(runs, folder)


def _drawn(runs: list[Run], folder: Path) -> list[Path]:
    groups = comparable(run for run in runs if run.summary)
    with_rounds = [pair for pair in zip(titles(groups), groups, strict=True) if curve_of(pair[1])]
    figures = [accuracy_against_rounds(group, title) for title, group in with_rounds]
    bars = aggregation_bars([group for _, group in with_rounds])
    _remove_earlier(folder)
    paths = [save(figure, folder / f"rounds-{n}.png") for n, figure in enumerate(figures, 1)]
    return [*paths, save(ae_against_sa(bars), folder / "aggregation.png")] if bars else paths


def _remove_earlier(folder: Path) -> None:
    """Those of other runs, of which there may be more: they would stand beside the new ones."""
    for path in folder.iterdir():
        if re.fullmatch(r"(rounds-\d+|aggregation)\.png", path.name):
            path.unlink()


def accuracy_against_rounds(runs: list[Run], title: str) -> "Figure":
    """Mean over seeds with a band of one standard deviation; methods without rounds are thin level lines."""
    figure, axes = new_figure(8, 5)
    for style, (label, mine) in zip(line_styles(), rows_of(runs).items(), strict=False):
        _draw_row(axes, mine, literal(label), style)
    axes.set(xlabel="round", ylabel="test accuracy of the server", title=literal(title))
    axes.title.set_fontsize(8)
    whole_numbers(axes)
    axes.grid(alpha=0.2)
    axes.legend(fontsize=8)
    return figure


def _draw_row(axes: "Axes", runs: list[Run], label: str, style: dict[str, Any]) -> None:
    curve = curve_of(runs)
    if curve is None:
        level = estimate([run.summary["server"]["accuracy_last"] for run in runs if run.summary]).mean
        axes.axhline(level, label=label, **{**style, "linewidth": 1})
        return
    mean = np.array(curve.mean)
    axes.plot(curve.rounds, mean, label=label, **style)
    if curve.spread:
        spread = np.array(curve.spread)
        axes.fill_between(curve.rounds, mean - spread, mean + spread, alpha=0.15, color=style["color"])


def aggregation_bars(groups: Iterable[list[Run]]) -> dict[str, Bars]:
    """For every group that has both in one seed at least: setting -> AE or SA -> the server's accuracies over seeds.

    Both are of the seeds that they share on one partition. Where a group has several rows of one of them, as with other
    stratifications, every pair of rows stands by itself.
    """
    both = [(group, pairs) for group in groups if (pairs := _pairs(_aggregations(group)))]
    short = [f"{group[0].data}\n{group[0].partition} {group[0].spread}" for group, _ in both]
    names = names_of(short, [group for group, _ in both])
    return {
        "\n".join([name, *told]): bars for name, (_, pairs) in zip(names, both, strict=True) for told, bars in pairs
    }


def _aggregations(group: list[Run]) -> dict[str, dict[str, Outcomes]]:
    """AE or SA -> label of the row -> what the server reached."""
    found: dict[str, dict[str, Outcomes]] = {name: {} for name in AGGREGATIONS.values()}
    for label, runs in rows_of(run for run in group if run.method == "fedhydra").items():
        done = outcomes(runs, LAST.server)
        if done.values and (name := _aggregation(runs[0])):
            found[name][label] = done
    return found


def _pairs(rows: dict[str, dict[str, Outcomes]]) -> list[tuple[list[str], Bars]]:
    """Every row with AE beside every one with SA, and the labels that tell one pair from another, if there are more."""
    pairs = [
        (
            [label for label, own in zip(labels, rows.values(), strict=True) if len(own) > 1],
            _bars({name: own[label] for label, (name, own) in zip(labels, rows.items(), strict=True)}),
        )
        for labels in product(*rows.values())
    ]
    return [(told, bars) for told, bars in pairs if bars]


def _bars(pair: dict[str, Outcomes]) -> Bars:
    """The accuracies of two rows in the seeds that they share; nothing where there is none."""
    seeds = shared_seeds(pair.values())
    return {name: [own.values[seed] for seed in seeds] for name, own in pair.items()} if seeds else {}


def _aggregation(run: Run) -> str | None:
    """SA is the method as it is, AE the one in which nothing but the ensemble is another; None: neither."""
    name = AGGREGATIONS.get(run.setting("method.ensemble.name"))
    own = ("ensemble",) if name == "AE" else ()
    return name if all(below(key, own) for key in run.changed) else None


def ae_against_sa(bars: dict[str, Bars]) -> "Figure":
    """Two bars per setting over the same seeds, with their number and, of several, the standard deviation."""
    figure, axes = new_figure(3 + 1.2 * len(bars), 4)
    for position, name in enumerate(AGGREGATIONS.values()):
        values = [estimate(found[name]) for found in bars.values()]
        places = np.arange(len(bars)) + 0.4 * (position - 0.5)
        spreads = [math.nan if value.std is None else value.std for value in values]
        colour = COLOURS[position]
        axes.bar(
            places, [value.mean for value in values], width=0.38, yerr=spreads, capsize=3, label=name, color=colour
        )
    counted = [f"{name}\n(n = {len(found['AE'])})" for name, found in bars.items()]
    axes.set_xticks(range(len(bars)), [literal(name) for name in counted], fontsize=8)
    axes.set(ylabel="test accuracy of the server, last round")
    axes.legend()
    return figure
