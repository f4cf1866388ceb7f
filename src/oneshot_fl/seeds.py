"""Randomness is owned: every consumer draws from a generator derived from (seed, its own name).

Adding a phase, a client or a log line therefore never shifts the draws of another.
"""

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def derive_seed(seed: int, *path: str | int) -> int:
    """A 63-bit seed that depends on `seed` and on every element of `path`."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def torch_generator(seed: int, *path: str | int) -> torch.Generator:
    """A CPU generator seeded by `derive_seed`; draws are made on the CPU, so they do not depend on the device."""
    return torch.Generator().manual_seed(derive_seed(seed, *path))


@contextmanager
def seeded(seed: int, *path: str | int) -> Iterator[None]:
    """Seed the generators that all code shares (weight initialisation, dropout) inside the block, and restore them."""
    with seeded_by(derive_seed(seed, *path)):
        yield


@contextmanager
def seeded_by(number: int) -> Iterator[None]:
    """Like `seeded`, by a number that was drawn already."""
    before = rng_states()
    try:
        torch.manual_seed(number)
        np.random.seed(number % 2**32)  # noqa: NPY002  # models and parts of others may draw from it
        random.seed(number)
        yield
    finally:
        set_rng_states(before)


def rng_states() -> dict[str, Any]:
    """Where the generators stand that all code of a process shares: torch's on every device, numpy's and Python's.

    Tensors and built-in types, which `torch.load` reads with `weights_only`.
    """
    of_numpy = np.random.get_state(legacy=False)  # noqa: NPY002
    of_numpy["state"]["key"] = torch.from_numpy(of_numpy["state"]["key"].astype(np.int64))
    return {
        "cpu": torch.get_rng_state(),
        "gpus": [*map(torch.cuda.get_rng_state, started_devices())],
        "apple": torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
        "numpy": of_numpy,
        "python": random.getstate(),
    }


def set_rng_states(states: Mapping[str, Any]) -> None:
    """Put them back, but for those of GPUs that are not here now, or were not when the states were taken."""
    torch.set_rng_state(states["cpu"])
    for device, state in enumerate(states["gpus"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, device)
    if states["apple"] is not None and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["apple"])
    twister = states["numpy"]["state"]
    np.random.set_state({**states["numpy"], "state": {**twister, "key": twister["key"].numpy()}})  # noqa: NPY002
    random.setstate(states["python"])


def started_devices() -> list[int]:
    """GPUs whose generators exist. Before CUDA has started nobody is asked: that would start it, in a CPU's job too."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
