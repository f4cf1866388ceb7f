"""What is written for spreadsheets, which take some texts for formulas and run them."""

import csv
import io
import re
from collections.abc import Iterable

FORMULA = re.compile(r"(^|[;\t\r\n])(?=[=+\-@\t\r＝＋－＠])")
"""Where a spreadsheet would begin a formula: at the beginning of a field, or behind what it may take for the end of one
(OWASP, CSV injection). Names of classes come from uploads, those of methods perhaps from others' summaries."""


def no_formula(text: str) -> str:
    """The text with an apostrophe before whatever a spreadsheet would take for a formula."""
    return FORMULA.sub(r"\1'", text)


def csv_line(fields: Iterable[object]) -> str:
    """One row of CSV with its line end, a line feed.

    Written to end in both characters, since Python quotes no carriage return where a line ends in a line feed alone.
    """
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(fields)
    return text.getvalue().removesuffix("\r\n") + "\n"
