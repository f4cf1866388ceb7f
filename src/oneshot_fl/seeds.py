"""Randomness is owned: every consumer draws from a generator derived from (seed, its own name).

Adding a phase, a client or a log line therefore never shifts the draws of another.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def derive_seed(seed: int, *path: str | int) -> int:
    """A 63-bit seed that depends on `seed` and on every element of `path`."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def torch_generator(seed: int, *path: str | int) -> torch.Generator:
    """A CPU generator seeded by `derive_seed`; draws are made on the CPU, so they do not depend on the device."""
    return torch.Generator().manual_seed(derive_seed(seed, *path))


@contextmanager
def seeded(seed: int, *path: str | int) -> Iterator[None]:
    """Seed the global generators (weight initialisation, dropout) inside the block and restore them after it."""
    with seeded_by(derive_seed(seed, *path)):
        yield


@contextmanager
def seeded_by(number: int) -> Iterator[None]:
    """The same with a number that was drawn already."""
    of_apples = apples_rng()
    with torch.random.fork_rng(devices=started_devices()):
        try:
            torch.manual_seed(number)
            yield
        finally:
            set_apples_rng(of_apples)


def started_devices() -> list[int]:
    """GPUs that have generators; to ask another for its own would start CUDA, on all of them and in jobs of a CPU."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def apples_rng() -> Tensor | None:
    """The state of the generator of an Apple GPU, of which `fork_rng` knows nothing; None where there is none."""
    return torch.mps.get_rng_state() if torch.backends.mps.is_available() else None


def set_apples_rng(state: Tensor | None) -> None:
    """Put it back; nothing where there is no such GPU, or was none."""
    if state is not None and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state)
