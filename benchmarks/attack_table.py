"""The rows that `benchmarks.attacks` has kept, and a table of them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from oneshot_fl.errors import OneshotError, one_line

Row = dict[str, Any]
ASKED = ("method", "clients", "hostile", "seed", "overrides", "gate", "attack")
"""What was asked of a run, and tells it from others."""
NO_MEASURES = (*ASKED, "code", "commit", "error", "quarantined")
"""Keys of a row that are no share of images."""
ALWAYS = ("server", "backdoor")
"""Measures of every run that did not end with an error."""


def read_rows(path: Path) -> list[Row]:
    """One row a line.

    Raises:
        OneshotError: there is no such file, or a line of it is no row.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OneshotError(f"{path}: cannot be read ({one_line(error)}); must be JSON lines of this program") from error
    return [_row(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def _row(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise OneshotError(f"{where}: is no JSON ({one_line(error)}); must be one row a line") from error
    if not isinstance(row, dict) or not row.keys() >= {"method", "gate", "attack"}:
        raise OneshotError(f"{where}: is no row of this program")
    return row


def asked(row: Row) -> tuple[Any, ...]:
    """What was asked of a run, to be compared."""
    return tuple(_comparable(row.get(key)) for key in ASKED)


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def table(rows: Sequence[Row], what: str = "server") -> str:
    """A measure in percent: mean and standard deviation over the seeds of what was asked for alike, but for attacks.

    Of a run that was done again, by other code, the last row counts.

    Args:
        what: a measure: `server`, `backdoor`, or one of the ensembles.

    Raises:
        OneshotError: no row has such a measure.
    """
    known = measures(rows)
    if what not in known:
        raise OneshotError(f"--table {what}: no run has it; must be one of {', '.join(known)}")
    last = list({asked(row): row for row in rows}.values())
    attacks = list(dict.fromkeys(row["attack"] for row in last))
    columns = _columns(last)
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in last:
        groups.setdefault(tuple(cell(row) for cell in columns.values()), []).append(row)
    lines = [[*columns, *attacks], ["---"] * (len(columns) + len(attacks))]
    for told, own in groups.items():
        lines.append([*told, *(_cell([row for row in own if row["attack"] == attack], what) for attack in attacks)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measures(rows: Iterable[Row]) -> list[str]:
    """Every measure of some row, by name."""
    return sorted({*ALWAYS, *(key for row in rows for key in row)} - set(NO_MEASURES))


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    """What tells the rows' groups apart, as texts: of the overrides those that not all rows share, if there are any."""
    shared = set.intersection(*({*row.get("overrides", ())} for row in rows)) if rows else set()
    columns = {key: lambda row, key=key: str(row.get(key)) for key in ("clients", "hostile", "method", "gate")}
    columns["overrides"] = lambda row: " ".join(each for each in row.get("overrides", ()) if each not in shared)
    return {
        name: cell
        for name, cell in columns.items()
        if name not in ("hostile", "overrides") or len({cell(row) for row in rows}) > 1
    }


def _cell(rows: Sequence[Row], what: str) -> str:
    """For instance `81.7 ± 2.0 (3)`, of three seeds, and how many ended with an error; `-` where there is nothing."""
    found = [100 * row[what] for row in rows if row.get(what) is not None]
    errors = sum("error" in row for row in rows)
    spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
    told = [f"{mean(found):.1f}{spread} ({len(found)})"] if found else []
    return ", ".join(told + [f"error ({errors})"] * (errors > 0)) or "-"
