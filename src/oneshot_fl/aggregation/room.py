"""How many classes uploads may bring together: as many as one model file can name."""

import json
from collections.abc import Iterable, Mapping, Sequence

from oneshot_fl.data.class_names import MOST_CLASSES
from oneshot_fl.models.described import LONGEST

MOST_LETTERS = LONGEST - 100_000
"""Of all names together, as a model file writes them; what is left is for its architectures."""


def crowding(names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Whose classes have no place beside the others', and why, by the upload's name.

    Uploads that name little come first: one that names very many classes would leave no place for anybody else's.

    Args:
        names: of each upload's classes.
    """
    known, letters, reasons = set[str](), 0, dict[str, str]()
    for upload in sorted(names, key=lambda each: _share(names[each])):
        new = set(names[upload]) - known
        more, longer = len(known) + len(new), letters + _letters(new)
        if more <= MOST_CLASSES and longer <= MOST_LETTERS:
            known |= new
            letters = longer
        else:
            reasons[upload] = (
                f"names {len(names[upload]):,} classes: with those of uploads that name less there would be {more:,} "
                f"of {longer:,} characters, and a model has {MOST_CLASSES:,} of {MOST_LETTERS:,} at most"
            )
    return reasons


def _share(names: Sequence[str]) -> float:
    """Of the place that there is."""
    return max(len(names) / MOST_CLASSES, _letters(names) / MOST_LETTERS)


def _letters(names: Iterable[str]) -> int:
    """With what stands between two names."""
    return sum(len(json.dumps(name)) + 2 for name in names)
