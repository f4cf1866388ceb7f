"""The tables: each function measures one group and returns its rows."""

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.accelerator import on_accelerator
from benchmarks.measure import Arithmetic, Seconds, in_turn, process, timed
from benchmarks.runs import configuration, literally, ours
from benchmarks.scale import COLOUR, GREY, Scale
from benchmarks.steps import LocalTraining, Steps

Row = dict[str, Any]
PRECISIONS = ("32-true", "bf16-mixed")
LITERAL, KEPT = "literal", "literal, memory kept"
ON_ACCELERATOR = {f"On an accelerator, {scale.name}": scale for scale in (GREY, COLOUR)}
"""Tables of their own, so that one that is measured is not measured again because the next one was stopped."""


def run_once(way: str, method: str, scale: Scale) -> Seconds:
    """A whole run, of the literal version or of the framework in a precision."""
    if way in (LITERAL, KEPT):
        return literally(method, scale)
    return ours(configuration(method, scale, f"trainer.precision={way}"), scale)


def against_literal(repeats: int) -> list[Row]:
    """Every part of whole runs against the literal version, as a script of its own and with freed memory kept.

    A process a way, because what the program does about freed memory makes the literal version faster too.
    """
    rows = []
    with ExitStack() as stack:
        ways = {way: stack.enter_context(process(kept_memory=way != LITERAL)) for way in (LITERAL, KEPT, *PRECISIONS)}
        for scale, method in product((GREY, COLOUR), ("fedhydra", "co_boosting")):
            runs = {way: partial(_elsewhere, where, way, method, scale) for way, where in ways.items()}
            rows += rows_of_parts(in_turn(runs, repeats=repeats), {"scale": scale.name, "method": method})
    return rows


def _elsewhere(where: Executor, *run: Any) -> Seconds:
    return where.submit(run_once, *run).result()


def rows_of_parts(medians: Mapping[str, Seconds], about: Row) -> list[Row]:
    """A row a part that every way has: Co-Boosting stratifies nothing."""
    rows = []
    for part, literal in medians[LITERAL].items():
        if all(seconds[part] for seconds in medians.values()):
            row = {**about, "part": part, **{f"{way}, s": seconds[part] for way, seconds in medians.items()}}
            row |= {f"literal / {precision}": literal / medians[precision][part] for precision in PRECISIONS}
            rows.append(row | {f"kept / {PRECISIONS[-1]}": medians[KEPT][part] / medians[PRECISIONS[-1]][part]})
    return rows


def against_convolutions(repeats: int) -> list[Row]:
    """Single steps against nothing but the convolutions and matrix products in them."""
    rows = []
    for scale in (GREY, COLOUR):
        for precision in PRECISIONS:
            steps = Steps(scale, precision=precision)
            for name, step in {"training step": steps.training(), "generator step": steps.generation()}.items():
                step()
                with Arithmetic() as alone:
                    step()
                medians = in_turn({"step": timed(step), "alone": timed(alone.again)}, repeats=3 * repeats)
                whole, bare = medians["step"]["whole"], medians["alone"]["whole"]
                rows.append(
                    {
                        "scale": scale.name,
                        "precision": precision,
                        "what": name,
                        "step, s": whole,
                        "its arithmetic alone, s": bare,
                        "share": bare / whole,
                    }
                )
    return rows


def choices(repeats: int) -> list[Row]:
    """Ways to do the same, in turn: what the defaults were chosen by."""
    rows = []
    for scale in (GREY, COLOUR):
        plain, layout, compiled = Steps(scale), Steps(scale, channels_last=False), Steps(scale, compiled=True)
        stacked, narrow = Steps(scale, bank="stacked"), Steps(replace(scale, width=16))
        pairs = {
            "training step: contiguous | channels_last": (layout.training(), plain.training()),
            "training step: torch.compile | as it is": (plain.training(compiled=True), plain.training()),
            "generator step: generator compiled | as it is": (compiled.generation(), plain.generation()),
            "stratification: generator compiled | as it is": (
                compiled.stratification(at_once=1),
                plain.stratification(at_once=1),
            ),
            "generator step: contiguous | channels_last": (layout.generation(), plain.generation()),
            "generator step: clients stacked | one by one": (stacked.generation(), plain.generation()),
            "stratification, width 16: classes stacked | one by one": (
                narrow.stratification(at_once=scale.classes),
                narrow.stratification(at_once=1),
            ),
        }
        for name, (first, second) in pairs.items():
            medians = in_turn({"first": timed(first), "second": timed(second)}, repeats=repeats)
            a, b = medians["first"]["whole"], medians["second"]["whole"]
            rows.append({"scale": scale.name, "first | second": name, "first, s": a, "second, s": b, "ratio": a / b})
    return rows


def many_clients(repeats: int) -> list[Row]:
    """A generator step from 5 to 100 clients, with 16 and with all of them at once in memory."""
    counts = (5, 10, 20, 50, 100)
    narrow = {m: replace(GREY, width=16, clients=m) for m in counts}
    steps = {(m, at_once): Steps(narrow[m], at_once=at_once).generation() for m in counts for at_once in (16, None)}
    medians = in_turn({f"{m} {at_once}": timed(step) for (m, at_once), step in steps.items()}, repeats=repeats)
    rows = []
    for m in counts:
        grouped, together = (medians[f"{m} {at_once}"]["whole"] for at_once in (16, None))
        rows.append(
            {
                "clients": m,
                "16 at once, s": grouped,
                "s a client": grouped / m,
                "all at once, s": together,
                "all, s a client": together / m,
            }
        )
    return rows


def stratification_share(repeats: int) -> list[Row]:
    """What stratification would add to DENSE's server part at the paper's T_g = 200, T_G = 30, m = 5, c = 10."""
    rounds, steps, batches = 200, 30, (128, 32, 16, 8)
    rows = []
    for scale in (replace(GREY, classes=10), replace(COLOUR, classes=10)):
        for precision in PRECISIONS:
            whole = Steps(scale, precision=precision)
            parts = {batch: Steps(replace(scale, batch=batch), precision=precision) for batch in batches}
            actions = {"generator": whole.generation(), "student": whole.training()}
            actions |= {str(batch): part.stratification(at_once=1) for batch, part in parts.items()}
            measured = in_turn({name: timed(action) for name, action in actions.items()}, repeats=repeats)
            seconds = {name: medians["whole"] for name, medians in measured.items()}
            dense = rounds * steps * seconds["generator"] + rounds * (rounds + 1) / 2 * seconds["student"]
            shares = {f"batch {batch}": scale.clients * steps * seconds[str(batch)] / dense for batch in batches}
            rows.append({"scale": scale.name, "precision": precision, "DENSE's server, s": dense, **shares})
    return rows


def many_classes(repeats: int) -> list[Row]:
    """Stratification of one client with 10 and with 100 classes."""
    narrow = replace(GREY, width=16)
    steps = {c: Steps(replace(narrow, classes=c)).stratification(at_once=1) for c in (10, 100)}
    medians = in_turn({str(c): timed(step) for c, step in steps.items()}, repeats=repeats)
    return [{"classes": c, "step of all, s": (s := medians[str(c)]["whole"]), "s a class": s / c} for c in steps]


def lightning(repeats: int) -> list[Row]:
    """Local training by the Trainer against the same loop by hand."""
    rows = []
    for scale in (replace(GREY, name="8x8 grey, cnn2", size=8, samples=2048), replace(GREY, samples=2048)):
        training = LocalTraining(scale)
        runs = {"trainer": timed(training.by_trainer), "hand": timed(training.by_hand)}
        medians = in_turn(runs, repeats=3 * repeats)
        a, b = medians["trainer"]["whole"], medians["hand"]["whole"]
        rows.append({"scale": scale.name, "Trainer, s": a, "by hand, s": b, "overhead": a / b - 1})
    return rows


def start_up(repeats: int) -> list[Row]:
    """Seconds until the command line answers."""
    rows = []
    for arguments in (["--help"], ["--cfg", "job"]):
        command = [sys.executable, "-m", "oneshot_fl", *arguments]
        call = timed(partial(subprocess.run, command, check=True, capture_output=True))
        rows.append({"command": " ".join(arguments), "s": in_turn({"it": call}, repeats=repeats)["it"]["whole"]})
    return rows


def memory(_repeats: int) -> list[Row]:
    """Peak memory of a process that does one whole run and nothing else."""
    rows = []
    for method in ("fedhydra", "co_boosting"):
        row: Row = {"scale": COLOUR.name, "method": method}
        for way in (LITERAL, *PRECISIONS):
            with process(kept_memory=way != LITERAL) as fresh:
                row[f"{way}, MiB"] = fresh.submit(peak, way, method).result()
        rows.append(row)
    return rows


def peak(way: str, method: str) -> int:
    """MiB that this process needed at most for one run; `getrusage` would tell of the process that started it."""
    run_once(way, method, COLOUR)
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


GROUPS = {
    "Against the literal version": against_literal,
    "Against the arithmetic alone": against_convolutions,
    "Choices": choices,
    "Many clients": many_clients,
    "Many classes": many_classes,
    "Stratification over DENSE": stratification_share,
    "Lightning": lightning,
    "Start-up": start_up,
    "Peak memory": memory,
    **{name: partial(on_accelerator, scale=scale) for name, scale in ON_ACCELERATOR.items()},
}
