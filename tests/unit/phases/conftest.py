"""Artifacts that tell in which order they were made, and a clock that tests move."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from oneshot_fl import ledger
from oneshot_fl.artifacts import Artifact
from oneshot_fl.store import Wanted


@pytest.fixture
def made() -> list[int]:
    """The numbers of the artifacts, as they are made."""
    return []


@pytest.fixture
def wanting(made) -> Callable[[int], list[Wanted]]:
    """A function from a number of artifacts to that many, none of them made."""

    def make(k: int) -> Artifact:
        made.append(k)
        return Artifact({"k": torch.tensor(k)}, {})

    return lambda count: [Wanted("clients", {"k": k}, lambda _, k=k: make(k)) for k in range(count)]


class Clock:
    """What meters take for the time; it stands still."""

    now = 0.0

    def tick(self) -> None:
        """A second later."""
        self.now += 1.0


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The clock that this test's meters read."""
    clock = Clock()
    read = {"perf_counter": lambda: clock.now, "process_time": lambda: clock.now}
    monkeypatch.setattr(ledger, "time", SimpleNamespace(**read))
    return clock
