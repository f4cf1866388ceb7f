"""Command lines of the benchmarks, whose mistakes are one line as the program's own are."""

import argparse
from typing import NoReturn

from oneshot_fl.errors import OneshotError


class Parser(argparse.ArgumentParser):
    """To be asked inside `mistakes_told`."""

    def error(self, message: str) -> NoReturn:
        """What argparse found, without the lines of its usage.

        Raises:
            OneshotError: always.
        """
        raise OneshotError(f"{message.removeprefix('argument ')} (--help tells more)")


def above_zero(text: str) -> int:
    """How many there are to be of something.

    Raises:
        argparse.ArgumentTypeError: there would be none, or it is no whole number.
    """
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number above 0")
    return count
