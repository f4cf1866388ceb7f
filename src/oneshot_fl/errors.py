"""The one error that users are meant to see."""


class OneshotError(Exception):
    """A mistake in the input: one plain line that says what, where and what would be right.

    The program prints the line, without a traceback, and ends with exit code 2.
    """
