"""The one error that users are meant to see, and its kind for uploads of which none is left."""


class OneshotError(Exception):
    """A mistake in the input: one plain line that says what, where and what would be right.

    The program prints the line, without a traceback, and ends with exit code 2.
    """


class NothingLeftError(OneshotError):
    """Every upload was turned away; `oneshot-fl aggregate` ends with exit code 3."""
