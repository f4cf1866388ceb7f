"""The share of a machine's cores that each of its parallel jobs has."""

import os

from joblib import cpu_count

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def threads_each(jobs: int) -> dict[str, str]:
    """The environment in which each of several parallel jobs uses its share of the cores; the user's own wins."""
    share = str(max(1, cpu_count() // jobs))
    return {name: share for name in THREADS if name not in os.environ}
