"""Predictions as lines: what `oneshot-fl predict` prints."""

from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from oneshot_fl.serving.model import Prediction
from oneshot_fl.serving.pictures import Picture, on_one_line
from oneshot_fl.spreadsheets import FORMULA, csv_line, no_formula

UNSURE = "unsure"
"""What a reader is told where no class is named; in CSV the field is empty."""


def write_predictions(
    answers: Iterable[Prediction | Picture],
    class_names: Sequence[str],
    out: TextIO,
    *,
    as_csv: bool,
    problem: Callable[[str], None],
) -> int:
    """One line an image, for a reader or as CSV: path, class, its probability, and the probability of every class.

    In CSV a class that a spreadsheet would take for a formula has an apostrophe before it; such a path has a `./`, and
    the apostrophe only where a formula would begin within it.

    Args:
        problem: called with one line for every image that cannot be used, which has no line of its own in `out`.

    Returns:
        How many images could not be used.
    """
    if as_csv:
        out.write(csv_line(["path", "class", "probability", *map(no_formula, class_names)]))
    unusable = 0
    for answer in answers:
        if isinstance(answer, Picture):
            unusable += 1
            problem(answer.problem)
        elif as_csv:
            out.write(csv_line(_row(answer)))
        else:
            told = f"{answer.image}: {answer.label or UNSURE} ({answer.probability:.1%})"
            out.write(f"{on_one_line(told)}\n")
    return unusable


def _row(answer: Prediction) -> list[str]:
    """Probabilities with six digits."""
    shares = (answer.probability, *answer.probabilities.values())
    path = f"./{answer.image}" if FORMULA.match(answer.image) else answer.image
    return [no_formula(path), no_formula(answer.label or ""), *(f"{share:.6f}" for share in shares)]
