"""A table before it is printed, and the four ways to print it."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oneshot_fl.reporting.tables.estimates import Estimate


@dataclass(frozen=True)
class Sheet:
    """Title, header, rows of text and footnotes; `records` are the same numbers for machines, one per cell."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)


def percent(value: Estimate, *, signed: bool = False) -> str:
    """A fraction's estimate in percent: `mean ± sample standard deviation`, the mean alone for one seed."""
    mean = f"{100 * value.mean:{'+' if signed else ''}.2f}"
    return mean if value.std is None else f"{mean} ± {100 * value.std:.2f}"


def interval(value: Estimate, *, signed: bool = False) -> str:
    """The 95% confidence interval in percent, empty where there is none.

    It ends where accuracies do, at 0 and 100; that of a (signed) difference of two at -100 and 100.
    """
    if value.half_width is None:
        return ""
    sign, least = ("+", -100.0) if signed else ("", 0.0)
    low, high = (min(max(100 * (value.mean + side * value.half_width), least), 100.0) for side in (-1, 1))
    return f"[{low:{sign}.2f}, {high:{sign}.2f}]"


def to_markdown(sheets: Sequence[Sheet]) -> str:
    """GitHub's tables."""
    return "\n\n".join(_markdown(sheet) for sheet in sheets)


def _markdown(sheet: Sheet) -> str:
    rule = ["---", *["---:"] * (len(sheet.header) - 1)]
    told = [[cell.replace("|", r"\|") for cell in row] for row in (sheet.header, *sheet.rows)]
    lines = [f"| {' | '.join(row)} |" for row in (told[0], rule, *told[1:])]
    return "\n".join([f"**{sheet.title}**", "", *lines, *(f"\n{note}" for note in sheet.notes)])


def to_latex(sheets: Sequence[Sheet]) -> str:
    """`table` environments with booktabs' rules."""
    return "\n\n".join(_latex(sheet) for sheet in sheets)


LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%_#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}
)


def _latex(sheet: Sheet) -> str:
    lines = [" & ".join(cell.translate(LATEX) for cell in row) + r" \\" for row in (sheet.header, *sheet.rows)]
    notes = [rf"\par\footnotesize {note.translate(LATEX)}" for note in sheet.notes]
    return "\n".join(
        [
            r"\begin{table}\centering",
            rf"\caption{{{sheet.title.translate(LATEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(sheet.header) - 1)}}}",
            *(r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"),
            r"\end{tabular}",
            *notes,
            r"\end{table}",
        ]
    )


def to_csv(sheets: Sequence[Sheet]) -> str:
    """All records under one header, in fractions, behind the title of their table."""
    records = [{"table": sheet.title, **record} for sheet in sheets for record in sheet.records]
    columns = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().rstrip("\n")


WIDEST = 1_000_000
"""Characters of a line in which Rich lays a box out; it takes what it needs, and cuts cells that need more."""


def to_terminal(sheets: Sequence[Sheet]) -> str:
    """Boxes as wide as their content; a terminal too narrow scrolls or wraps."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    text = io.StringIO()
    console = Console(file=text, width=WIDEST, highlight=False, markup=False, emoji=False)
    for sheet in sheets:
        console.print(sheet.title, style="bold", soft_wrap=True)
        table = Table()
        for position, name in enumerate(sheet.header):
            table.add_column(Text(name), justify="right" if position else "left", no_wrap=True)
        for row in sheet.rows:
            table.add_row(*map(Text, row))
        console.print(table)
        for note in sheet.notes:
            console.print(note, soft_wrap=True)
        console.print()
    return text.getvalue().rstrip()


FORMATS = {"terminal": to_terminal, "markdown": to_markdown, "csv": to_csv, "latex": to_latex}
