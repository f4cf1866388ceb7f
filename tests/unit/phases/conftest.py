"""Artifacts that tell in which order they were made."""

from collections.abc import Callable

import pytest
import torch

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
