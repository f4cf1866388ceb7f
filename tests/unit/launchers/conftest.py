"""Jobs that are stopped in the process of the tests."""

import signal
from collections.abc import Iterator

import pytest

from oneshot_fl.process import STOPPING


@pytest.fixture(autouse=True)
def stops_are_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stop ends the process: that somebody asked for one, and the handlers, are put back for the next test."""
    monkeypatch.setattr("oneshot_fl.process._asked", [])
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
