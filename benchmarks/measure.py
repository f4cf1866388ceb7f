"""Measuring: things side by side in turn, medians and ratios; and what the convolutions alone would take."""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from oneshot_fl.process import keep_freed_memory

Seconds = Mapping[str, float]
ARITHMETIC = {
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.mm.default,
}


def in_turn(runs: Mapping[str, Callable[[], Seconds]], *, repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds of every part of every run; all runs once to warm up, then `repeats` times in turn.

    The machine is shared, so only what was measured in turn may be compared.
    """
    seen: dict[str, list[Seconds]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            seconds = run()
            if repeat:
                seen[name].append(seconds)
    return {
        name: {part: statistics.median(seconds[part] for seconds in measured) for part in measured[0]}
        for name, measured in seen.items()
    }


def timed(action: Callable[[], Any]) -> Callable[[], Seconds]:
    """The seconds of a call, as the one part `whole`."""

    def run() -> Seconds:
        begun = time.perf_counter()
        action()
        return {"whole": time.perf_counter() - begun}

    return run


def process(*, kept_memory: bool) -> Executor:
    """A process of its own, so that one way's memory is not another's; with the program's setting for freed memory."""
    begin = keep_freed_memory if kept_memory else None
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=begin)


class Arithmetic(TorchDispatchMode):
    """Keeps every convolution and matrix product that runs inside the block, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ARITHMETIC:
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    @torch.no_grad()
    def again(self) -> None:
        """The same calls on the same tensors and nothing else: what the rest of the step is measured against."""
        for func, args, kwargs in self.calls:
            func(*args, **kwargs)
