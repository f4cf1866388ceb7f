"""What an aggregation leaves in its folder, and how it is taken away there before another one may fail."""

from pathlib import Path

from oneshot_fl.config.record import SUMMARY
from oneshot_fl.disk import writing
from oneshot_fl.reporting.server_file import NAME

REPORT, PAGE = "report.json", "report.html"
RESULT = (SUMMARY, NAME, REPORT, PAGE)
"""The summary first: it is what says that the others are whole."""


def remove_result(folder: Path) -> None:
    """Remove what an earlier aggregation left, so that nobody takes it for what a failed one has made.

    Raises:
        OneshotError: the folder cannot be written.
    """
    for name in RESULT:
        with writing(str(folder / name)):
            (folder / name).unlink(missing_ok=True)
