"""Every contract test also knows the methods of somebody else."""

from collections.abc import Iterator

import pytest

from tests.foreign import foreign_methods


@pytest.fixture(autouse=True)
def somebody_elses_methods() -> Iterator[None]:
    """They can be chosen in every test of this folder."""
    with foreign_methods():
        yield
