"""How a command ends where whoever called it made a mistake."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from oneshot_fl.errors import NothingLeftError, OneshotError
from oneshot_fl.process import say


@contextmanager
def mistakes_told() -> Iterator[None]:
    """An `OneshotError` inside the block is one line on standard error and exit code 2; 3 where no upload is left."""
    try:
        yield
    except OneshotError as error:
        say(str(error))
        sys.exit(3 if isinstance(error, NothingLeftError) else 2)
