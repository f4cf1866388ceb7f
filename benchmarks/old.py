"""Pairs of ways to do the same thing, measured in turn in one process: medians and ratios as Markdown.

    make bench

The machine is shared, so only the ratios mean anything.
"""

import platform
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2, cnn3
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.phases.stratify import StratifyModule
from oneshot_fl.seeds import torch_generator

GREY28 = DataSpec(1, 28, 10, (0.5,), (0.5,))
RGB32 = DataSpec(3, 32, 10, (0.5,) * 3, (0.5,) * 3)
REPEATS = 5


def medians(first: Callable[[], None], second: Callable[[], None]) -> tuple[float, float]:
    """Median seconds of two functions, called in turn after one call each to warm up."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for repeat in range(REPEATS + 1):
        for measured, action in zip(seconds, (first, second), strict=True):
            begun = time.perf_counter()
            action()
            if repeat:
                measured.append(time.perf_counter() - begun)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def stratification(at_once: int, width: int) -> Callable[[], None]:
    """One generator step of all ten classes of one client, `at_once` of them stacked."""
    modules = []
    for group in torch.arange(10).split(at_once):
        generator = ConvGenerator(GREY28, noise=256, width=width)
        generator.reset(torch_generator(0))
        client, adam = cnn2(GREY28, norm=True), partial(torch.optim.Adam, lr=0.001)
        module = StratifyModule(client, generator, classes=group, z=torch.randn(128, 256), optimizer=adam)
        modules.append((module, module.configure_optimizers()))

    def step() -> None:
        for module, optimizer in modules:
            optimizer.zero_grad()
            module.training_step(None, 0).backward()
            optimizer.step()

    return step


def bank(mode: str) -> Callable[[], None]:
    """Forward and backward to the images of five clients on 128 images of 3x32x32."""
    clients = ClientBank([cnn3(RGB32, norm=True) for _ in range(5)], mode=mode)  # type: ignore[arg-type]
    x = torch.randn(128, 3, 32, 32, requires_grad=True)

    def step() -> None:
        F.cross_entropy(
            clients(x, frozenset({"statistics"})).logits.mean(0), torch.zeros(128, dtype=torch.long)
        ).backward()

    return step


def main() -> None:
    """Print the table."""
    pairs = {
        "stratification, 28x28, width 16: all classes stacked | one at a time": (
            stratification(10, 16),
            stratification(1, 16),
        ),
        "stratification, 28x28, width 64: all classes stacked | one at a time": (
            stratification(10, 64),
            stratification(1, 64),
        ),
        "bank, 5 x cnn3, 128 images of 3x32x32: stacked | loop": (bank("stacked"), bank("loop")),
    }
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, CPU\n")
    print("| first / second | first, s | second, s | first / second |\n|---|---:|---:|---:|")
    for name, (first, second) in pairs.items():
        a, b = medians(first, second)
        print(f"| {name.replace('|', '/')} | {a:.3f} | {b:.3f} | {a / b:.2f} |")


if __name__ == "__main__":
    main()
