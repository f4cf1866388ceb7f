"""Predictions as CSV: what `oneshot-fl predict` prints."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from oneshot_fl.serving.model import Prediction, ServedModel
from oneshot_fl.serving.pictures import Picture


def write_predictions(
    model: ServedModel,
    images: Sequence[Path],
    out: TextIO,
    *,
    abstain: float,
    max_value: float | None,
    problem: Callable[[str], None],
) -> int:
    """One line an image: path, class (empty: abstained), its probability, and the probability of every class.

    Args:
        problem: called with one line for every image that cannot be used, which has no line in the table.

    Returns:
        How many images could not be used.

    Raises:
        OneshotError: a file or folder does not exist, or a folder holds no image.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["path", "class", "probability", *model.class_names])
    unusable = 0
    for answer in model.answers(images, abstain=abstain, max_value=max_value):
        if isinstance(answer, Picture):
            unusable += 1
            problem(answer.problem)
        else:
            writer.writerow(_row(answer))
    return unusable


def _row(answer: Prediction) -> list[str]:
    """Probabilities with six digits."""
    shares = (answer.probability, *answer.probabilities.values())
    return [answer.image, answer.label or "", *(f"{share:.6f}" for share in shares)]
