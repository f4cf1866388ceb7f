"""The one error that users are meant to see, its kind for uploads of which none is left, and words for both."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class OneshotError(Exception):
    """A mistake in the input: one plain line that says what, where and what would be right.

    The program prints the line, without a traceback, and ends with exit code 2.
    """


class NothingLeftError(OneshotError):
    """Every upload was turned away, or every one that a method needs; `oneshot-fl aggregate` ends with exit code 3."""


UNTOLD = (OneshotError, OSError, KeyError, TypeError, AttributeError)
"""What comes of asking a configuration that does not fit what it would run; the door or the run says what is wrong."""


LONGEST_REASON = 160
"""Characters of somebody else's message that one of ours quotes."""


OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
"""How torch's plain errors say it: CPUs, Apple's GPUs, and cuBLAS and cuDNN, which allocate for themselves."""


def says_out_of_memory(error: BaseException) -> bool:
    """Whether an error's own words are that there was not enough memory, whatever its kind."""
    return any(words in str(error) for words in OUT_OF_MEMORY)


def one_line(error: BaseException) -> str:
    """What another library's error says, on one line of at most `LONGEST_REASON` characters."""
    return " ".join(str(error).split())[:LONGEST_REASON]


def named_line(error: BaseException) -> str:
    """The same behind the error's kind, which often says more than its message."""
    return ": ".join(filter(None, (type(error).__name__, one_line(error))))


def printable(text: str) -> str:
    """A text on one line: white space of every kind as a space, other letters that cannot be printed as `?`."""
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def first_of(found: Sequence[object]) -> str:
    """The first of what was found, and how many more there are: "3 (and 2 more)"."""
    return f"{found[0]}" + f" (and {len(found) - 1} more)" * (len(found) > 1)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean ...?` where some known word is near: of keys beside a dotted one its last name decides."""
    around, _, name = word.rpartition(".")
    words = list(known)
    beside = {each.rpartition(".")[2]: each for each in words if each.rpartition(".")[0] == around}
    if near := get_close_matches(name, beside, n=1):
        return f", did you mean {beside[near[0]]}?"
    found = get_close_matches(word, [each for each in words if each.rpartition(".")[0] != around], n=1)
    return f", did you mean {found[0]}?" if found else ""
