"""How this process shares the cores and keeps its memory; the user's own settings of either win."""

import ctypes
import os
import sys

MALLOPT = {"M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 2**26), "M_MMAP_THRESHOLD": (-3, 2**31 - 1)}
"""glibc's numbers of what `mallopt` sets, and what to."""


def share_the_cores() -> None:
    """Idle OpenMP threads give their core away soon; to be called before torch is loaded.

    With the default of 300,000 spins a generator step on 8x8 images took 0.9 s beside another run on the same two
    cores, with 5,000 spins 0.065 s; alone both took about 0.011 s.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "5000"


def keep_freed_memory() -> None:
    """Freed memory is used again instead of being given back and cleared anew; only glibc can be told so.

    A generator step of five cnn3 at 3x32x32 touched 330,000 new pages; without them it takes three quarters of the
    time and 5% more memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt and not any(name.startswith("MALLOC_") for name in os.environ):
        for parameter, value in MALLOPT.values():
            mallopt(parameter, value)
