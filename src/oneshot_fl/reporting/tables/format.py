"""A table before it is printed, and the four ways to print it."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oneshot_fl.reporting.tables.estimates import Estimate
from oneshot_fl.spreadsheets import csv_line, no_formula


@dataclass(frozen=True)
class Sheet:
    """Title, header, rows of text and footnotes; `records` are the same numbers for machines, one per cell.

    `best` are the cells that Markdown and LaTeX print in bold, by their positions in `rows` and there.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    best: frozenset[tuple[int, int]] = frozenset()

    def cells(self, escaped: Callable[[str], str], bold: Callable[[str], str]) -> list[list[str]]:
        """The rows in the words of a format: every cell escaped, and the best of them bold."""
        return [
            [bold(escaped(cell)) if (line, place) in self.best else escaped(cell) for place, cell in enumerate(row)]
            for line, row in enumerate(self.rows)
        ]


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
    rows = sheet.cells(_in_markdown, lambda cell: f"**{cell}**")
    lines = [f"| {' | '.join(row)} |" for row in (map(_in_markdown, sheet.header), rule, *rows)]
    return "\n".join([f"**{sheet.title}**", "", *lines, *(f"\n{note}" for note in sheet.notes)])


def _in_markdown(cell: str) -> str:
    return cell.replace("|", r"\|")


def to_latex(sheets: Sequence[Sheet]) -> str:
    """`table` environments with booktabs' rules, each with a label of its title's words."""
    return "\n\n".join(_latex(sheet, label) for sheet, label in zip(sheets, _labels(sheets), strict=True))


def _labels(sheets: Sequence[Sheet]) -> list[str]:
    """What the text refers to tables by, each another: `tab:` and the title in the characters that no package reads."""
    plain = ["tab:" + re.sub("[^a-z0-9.]+", "-", sheet.title.lower()).strip("-.") for sheet in sheets]
    return [f"{label}-{plain[:n].count(label) + 1}" if label in plain[:n] else label for n, label in enumerate(plain)]


LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%_#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"[": "{[}"}  # else what begins a row is taken for an argument of the line before
)


MINUS = re.compile(r"(?<![\w.])-(?=\d)")
"""Before a number; that of a word or of a range is a hyphen."""


def _in_latex(text: str) -> str:
    return MINUS.sub("$-$", text.translate(LATEX))


def _latex(sheet: Sheet, label: str) -> str:
    rows = sheet.cells(_in_latex, lambda cell: rf"\textbf{{{cell}}}")
    lines = [" & ".join(row) + r" \\" for row in (map(_in_latex, sheet.header), *rows)]
    notes = [rf"\par\footnotesize {_in_latex(note)}" for note in sheet.notes]
    return "\n".join(
        [
            r"\begin{table}\centering",
            rf"\caption{{{_in_latex(sheet.title)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(sheet.header) - 1)}}}",
            *(r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"),
            r"\end{tabular}",
            *notes,
            r"\end{table}",
        ]
    )


def to_csv(sheets: Sequence[Sheet]) -> str:
    """All records under one header, in fractions, behind the title of their table; no text is a formula."""
    found = [{"table": sheet.title, **record} for sheet in sheets for record in sheet.records]
    records = [{key: no_formula(v) if isinstance(v, str) else v for key, v in record.items()} for record in found]
    columns = list(dict.fromkeys(key for record in records for key in record))
    rows = [columns, *([record.get(column, "") for column in columns] for record in records)]
    return "".join(map(csv_line, rows)).rstrip("\n")


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
