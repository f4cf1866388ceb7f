"""Steps on an accelerator: which arithmetic, stacked or one by one, compiled or not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.measure import in_turn, timed
from benchmarks.scale import Scale
from benchmarks.steps import Step, Steps
from oneshot_fl.phases.replay import captured
from oneshot_fl.phases.trainer import TrainerSettings, multiply_as

ARITHMETICS = {
    name: TrainerSettings("auto", precision, channels_last=True, matmul_precision=products)
    for name, precision, products in (
        ("32 bit", "32-true", "highest"),
        ("TF32", "32-true", "high"),
        ("bf16", "bf16-mixed", "high"),
    )
}


def on_accelerator(repeats: int, *, scale: Scale, device: str = "cuda", compiled: bool = True) -> list[dict[str, Any]]:
    """A row for each arithmetic and step: seconds one by one, replayed, stacked, and with a compiled generator."""
    rows = []
    for name, settings in ARITHMETICS.items():
        steps = _steps(scale, settings.precision, device, compiled=compiled)
        with _multiplying_as(settings):  # not before: what makes steps looks at a run's own settings, and sets theirs
            for what, ways in steps.items():
                if device == "cuda":
                    ways["replayed"] = _replayed(ways["one by one"])
                runs = {way: timed(until_done(step, device)) for way, step in ways.items()}
                seconds = {way: parts["whole"] for way, parts in in_turn(runs, repeats=repeats).items()}
                first, *others = seconds
                row = {"arithmetic": name, "step": what, f"{first}, s": seconds[first]}
                row |= {f"{first} / {way}": seconds[first] / seconds[way] for way in others}
                rows.append(row)
    return rows


def _steps(scale: Scale, precision: str, device: str, *, compiled: bool) -> dict[str, dict[str, Step]]:
    plain = Steps(scale, precision=precision, device=device)
    stacked = Steps(scale, precision=precision, device=device, bank="stacked")
    ways = {
        "generator": {"one by one": plain.generation(), "stacked": stacked.generation()},
        "stratification of all classes": {
            "one by one": plain.stratification(at_once=1),
            "stacked": plain.stratification(at_once=scale.classes),
        },
    }
    if compiled:
        layers = Steps(scale, precision=precision, device=device, compiled=True)
        ways["generator"]["compiled"] = layers.generation()
        ways["stratification of all classes"]["compiled"] = layers.stratification(at_once=1)
    return ways


def _replayed(step: Step) -> Step:
    """The step as a CUDA graph, once it has run as it is and everything is there that it needs."""
    step()
    return captured(lambda _: step(), None)


@contextmanager
def _multiplying_as(settings: TrainerSettings) -> Iterator[None]:
    """Inside the block 32-bit products and convolutions are as precise as a run of these settings has them."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    multiply_as(settings)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def until_done(step: Step, device: str) -> Callable[[], None]:
    """The step with everything that it has started; an accelerator is only asked to begin."""

    def run() -> None:
        step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run
