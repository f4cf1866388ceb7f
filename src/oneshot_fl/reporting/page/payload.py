"""What the page's script draws, as JSON: percentages, seconds, and the runs one by one."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from oneshot_fl.reporting.page.costs import COSTS
from oneshot_fl.reporting.page.pictures import embedded
from oneshot_fl.reporting.page.run_cards import run_card
from oneshot_fl.reporting.page.settings import Setting, cells_of, differences_of, gaps_of, labels_of
from oneshot_fl.reporting.tables.curves import Curve, curve_of
from oneshot_fl.reporting.tables.estimates import estimate
from oneshot_fl.reporting.tables.measures import Measure, measure_of
from oneshot_fl.reporting.tables.own import references
from oneshot_fl.reporting.tables.run import Run

Json = dict[str, Any]
POINTS = 60
"""Of a curve; more cannot be told apart at the width of a page."""
ACCURACY = measure_of("accuracy", which="last")


def payload(runs: Sequence[Run], settings: Sequence[Setting], out: Path, *, measure: Measure, budget: int) -> Json:
    """Everything that the page's script draws; `budget` is the bytes that pictures may take."""
    places = {id(run): (each.number, label) for each in settings for label, mine in each.rows.items() for run in mine}
    rows = [places.get(id(run), (None, run.label)) for run in runs]
    cards = [run_card(run, row, out) for run, row in zip(runs, rows, strict=True)]
    for place, pictures in embedded(runs, rows, budget=budget).items():
        cards[place]["pictures"] = pictures
    return {
        "measure": {"name": measure.header, "note": measure.note, "lowest": measure.lower_is_better},
        "settings": [
            {"s": each.number, "name": each.name, "apart": each.apart, "data": each.data, "partition": each.partition}
            for each in settings
        ],
        "methods": labels_of(settings),
        "cells": _of_each(settings, lambda setting: cells_of(setting, measure)),
        "differences": _of_each(settings, lambda setting: differences_of(setting, measure)),
        "gaps": _of_each(settings, lambda setting: gaps_of(setting, measure)),
        "curves": _of_each(settings, curves_of),
        "levels": _of_each(settings, levels_of),
        "costs": _of_each(settings, costs_of),
        "runs": cards,
    }


def _of_each(settings: Iterable[Setting], part: Callable[[Setting], list[Json]]) -> list[Json]:
    return [entry for setting in settings for entry in part(setting)]


def curves_of(setting: Setting) -> list[Json]:
    """The accuracies of all rows that have rounds, in percent."""
    found = [(label, curve_of(runs)) for label, runs in setting.rows.items()]
    return [{"s": setting.number, "m": label, **_curve(curve)} for label, curve in found if curve]


def _curve(curve: Curve) -> Json:
    kept = thinned(range(len(curve.rounds)), POINTS)
    spread = {} if curve.spread is None else {"spread": [_percent(curve.spread[place]) for place in kept]}
    rounds, mean = [curve.rounds[place] for place in kept], [_percent(curve.mean[place]) for place in kept]
    return {"n": curve.n, "rounds": rounds, "mean": mean, **spread}


def thinned(positions: Sequence[int], most: int) -> list[int]:
    """At most `most` of the positions, evenly spread, with the first and the last."""
    if len(positions) <= most:
        return list(positions)
    step = (len(positions) - 1) / (most - 1)
    return [positions[round(number * step)] for number in range(most)]


def _percent(value: float) -> float:
    return round(100 * value, 2)


def levels_of(setting: Setting) -> list[Json]:
    """What stays the same over the rounds: rows without any, the average of the logits, and the best ensemble."""
    still = [label for label, runs in setting.rows.items() if curve_of(runs) is None]
    rows = {label: known for label in still if (known := setting.values(label, ACCURACY.server))}
    shared = {name: known for name, known in references(setting.rows, ACCURACY).items() if name.startswith("ensemble")}
    means = {name: estimate(list(known.values())).mean for name, known in (rows | shared).items()}
    best = max(shared, key=means.__getitem__, default="")
    kept = [*rows, *(name for name in shared if name in (best, "ensemble: uniform"))]
    return [{"s": setting.number, "m": name, "row": name in rows, "mean": _percent(means[name])} for name in kept]


def costs_of(setting: Setting) -> list[Json]:
    """What the runs of each row cost in the mean over seeds, as far as all of them tell; no cost that is 0."""
    found = []
    for label, runs in setting.rows.items():
        done = [run.summary for run in runs if run.summary]
        for name, cost in COSTS.items():
            values = [cost(summary) for summary in done]
            known = [value for value in values if value]
            if known and len(known) == len(values):
                mean = estimate(known).mean
                found.append({"s": setting.number, "m": label, "cost": name, "value": float(f"{mean:.5g}")})
    return found
