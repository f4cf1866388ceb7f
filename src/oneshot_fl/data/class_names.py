"""Names of classes: how every file of ours spells them, and which it can hold."""

from collections import Counter
from typing import Annotated, Any
from unicodedata import normalize

from oneshot_fl.fits import problem, shown
from oneshot_fl.values import Rule

MOST_CLASSES, LONGEST_TEXT = 10_000, 200
"""Classes, and characters of a name."""


def _is_short(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= LONGEST_TEXT and text.isprintable()


ShortText = Annotated[str, Rule(f"a printable text of at most {LONGEST_TEXT} characters", _is_short)]
ClassNames = Annotated[
    list[ShortText],
    Rule(f"a list of 1 to {MOST_CLASSES} different names", lambda v: 1 <= len(v) == len(set(v)) <= MOST_CLASSES),
]


def class_name(text: str) -> str:
    """The name of a class as files have it: no white space around it, letters and their marks composed (NFC).

    Clients' classes are aligned by name, so one name has one spelling.
    """
    return normalize("NFC", text.strip())


def flaw_of_name(name: Any) -> str | None:
    """What a name should be instead, in words that complete "must be"; None where a model file can hold it."""
    return problem(name, ShortText) or problem(class_name(name), ShortText)


def flaw_of_names(names: Any) -> str | None:
    """What is wrong with the names of a data set's classes and what would be right; None where nothing is."""
    if not isinstance(names, list | tuple):
        return f"class_names={shown(names)}: must be a list of names"
    for name in names:
        if wanted := flaw_of_name(name):
            return f"class_names: {shown(ascii(name) if isinstance(name, str) else name)} must be {wanted}"
    spelt = Counter(map(class_name, names))
    if twice := [name for name, count in spelt.items() if count > 1]:
        return (
            f"class_names: several classes are called {shown(ascii(twice[0]))}, but must have different names; white "
            "space around a name and its Unicode form make no difference"
        )
    wanted = problem(list(spelt), ClassNames)
    return f"class_names: there are {len(names)}, but must be {wanted}" if wanted else None
