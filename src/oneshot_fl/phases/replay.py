"""Steps that do the same again and again, on an NVIDIA GPU as one CUDA graph.

A generator step is 500 to 900 kernels, most of them shorter than Python takes to start one (docs/results/speed.md).
Captured once, they start together. Nothing that Python decides in a step is decided anew in a replay, so only steps
that decide nothing are captured: `captures` says which.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from oneshot_fl.code import PACKAGE
from oneshot_fl.errors import OneshotError, one_line, says_out_of_memory
from oneshot_fl.models.cost import counted_for

T = TypeVar("T")
FEWEST = 4
"""Steps below which capturing one costs more than it saves."""


class Replays(Callback):
    """Tell a module that has steps to repeat whether CUDA graphs may be made of them."""

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Lightning's hook, before anything runs; a scaler of losses, as 16-mixed has one, waits for every step."""
        on_nvidia = trainer.strategy.root_device.type == "cuda" and torch.version.hip is None
        pl_module.replays = on_nvidia and getattr(trainer.precision_plugin, "scaler", None) is None


def captures(optimizer: torch.optim.Optimizer, parts: Iterable[Any]) -> bool:
    """Whether a step of this optimiser, in which these parts are called, does the same in a replay.

    A part of a user's own may count its calls, and so may an optimiser of another library.
    """
    known = type(optimizer) is torch.optim.SGD or (_home(optimizer) == "torch" and "capturable" in optimizer.defaults)
    return known and all(_home(part) == PACKAGE for part in parts)


def _home(part: Any) -> str:
    """The package that its class is of."""
    return type(part).__module__.partition(".")[0]


def repeated(step: Callable[[], T], times: int, *, optimizer: torch.optim.Optimizer | None = None) -> Iterator[T]:
    """What `times` calls of a step return.

    Args:
        step: returns tensors, alone or in tuples, lists or dictionaries.
        optimizer: the one that steps in it, where the step may be captured; it is run once as it is and captured the
            second time.

    Raises:
        OneshotError: the step waits for the device, or does something else that no graph can hold.
    """
    if optimizer is None or times < FEWEST:
        yield from (step() for _ in range(times))
        return
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    yield step()
    graph = torch.cuda.CUDAGraph()
    result = _captured(graph, step, times - 1)
    for _ in range(times - 1):
        graph.replay()
        yield copied(result)


def _captured(graph: torch.cuda.CUDAGraph, step: Callable[[], T], times: int) -> T:
    """What the step returns, which every replay writes anew."""
    try:
        with counted_for(times), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            return step()
    except RuntimeError as error:
        if says_out_of_memory(error):
            raise
        raise OneshotError(
            f"trainer.cuda_graphs=true: a step cannot be made a CUDA graph ({one_line(error)}); use "
            "trainer.cuda_graphs=false"
        ) from error


def copied(value: Any) -> Any:
    """The tensors of a step in memory of their own."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {name: copied(each) for name, each in value.items()}
    return type(value)(map(copied, value))
