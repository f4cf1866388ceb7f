"""Tasks of a Ray cluster, on any of its machines, that make a job's artifacts beside the job itself.

The job waits for none of them: what they have begun it leaves for last, and what they never begin, because the cluster
is full, or leave half made, because they die, it makes itself. So a full cluster cannot lock up.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from oneshot_fl.artifacts import Artifact
from oneshot_fl.ledger import beside_others
from oneshot_fl.process import keep_freed_memory
from oneshot_fl.store import Store, Wanted


def on_ray() -> bool:
    """Whether this process is part of a Ray cluster."""
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


@contextmanager
def helped(wanted: Sequence[Wanted], store: Store, helpers: int) -> Iterator[None]:
    """While the block runs, so many tasks make of `wanted` what nobody else is making.

    Each has what the job itself has of cores and GPUs. The store must lie where all machines of the cluster see it.

    Args:
        wanted: what is needed; what a `make` refers to travels to a task once that begins to make it.
        store: where it goes.
        helpers: the number of tasks.
    """
    import ray

    has = ray.get_runtime_context().get_assigned_resources()
    share = {"num_cpus": has.get("CPU", 1), "num_gpus": has.get("GPU", 0)}
    one = ray.remote(max_retries=0, **share)(_help)
    shared = replace(store, root=store.root.absolute())
    fetched = [replace(each, make=partial(_fetch_and_make, ray.put(each.make))) for each in wanted]
    starts = [len(wanted) * (k + 1) // (helpers + 1) for k in range(helpers)]  # the job begins at the first
    tasks = [one.remote(shared, fetched[start:] + fetched[:start], torch.get_num_threads()) for start in starts]
    try:
        yield
    finally:
        for task in tasks:
            ray.cancel(task)


def _help(store: Store, wanted: Sequence[Wanted], threads: int) -> None:
    keep_freed_memory()
    torch.set_num_threads(threads)
    with beside_others():
        for each in wanted:
            if not store.has(each):
                store.get_or_make_if_free(each)


def _fetch_and_make(make: Any, work: Path) -> Artifact:
    import ray

    made: Artifact = ray.get(make)(work)
    return made
