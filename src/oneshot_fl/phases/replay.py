"""Steps that do the same again and again, on an NVIDIA GPU as one CUDA graph.

A generator step is 500 to 1,000 kernels, most of them shorter than Python takes to start one (docs/results/speed.md).
Captured once, they start together. Nothing that Python decides in a step is decided anew in a replay, so only steps
that decide nothing are captured: `captures` says which.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, TypeVar

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from oneshot_fl.code import PACKAGE
from oneshot_fl.errors import OneshotError, one_line, says_out_of_memory
from oneshot_fl.models.cost import recorded
from oneshot_fl.recipe import home_of

T = TypeVar("T")
G = TypeVar("G")
FEWEST = 4
"""Steps below which capturing one costs more than it saves."""
KNOWN = frozenset({PACKAGE, "torch", "torchvision", "torchmetrics"})
"""Packages whose parts and layers draw random numbers, where they do, with torch on the device: a graph draws anew."""


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
    known = type(optimizer) is torch.optim.SGD or (home_of(optimizer) == "torch" and "capturable" in optimizer.defaults)
    return known and all(map(is_known, parts))


def is_known(part: Any) -> bool:
    """Whether its class is of a package of which we know what a step does, and none of a user's own."""
    return home_of(part) in KNOWN


def to_capture(
    module: Any, optimizer: Any, parts: Iterable[Any], *, rate_moves: bool = False
) -> torch.optim.Optimizer | None:
    """The optimiser inside one of Lightning's, for `repeated`, where the module's steps may be captured.

    From its first step on it counts its steps on the device, where a graph reads them: a pool of few images takes some
    steps as they are before there are enough for a graph.

    Args:
        module: that `Replays` told.
        optimizer: Lightning's.
        parts: what is called in a step.
        rate_moves: from step to step, which a replay follows where its optimiser reads the rate on the device.
    """
    own = optimizer.optimizer
    follows = not rate_moves or all(group.get("fused") for group in own.param_groups)
    if not (module.replays and follows and captures(own, parts)):
        return None
    for group in own.param_groups:
        group.update({"capturable": True} if "capturable" in group else {})
    return own


def repeated(
    step: Callable[[G], T], given: Iterable[G], *, optimizer: torch.optim.Optimizer | None = None
) -> Iterator[T]:
    """What a step returns for each of what it is given.

    Args:
        step: from tensors to tensors, alone or in tuples, lists or dictionaries.
        given: the tensors of each step. With an optimiser some are fetched ahead; those of other shapes than the
            first, as a last small batch, take the step as it is.
        optimizer: the one that steps in it, where the step may be captured; the first one runs as it is.

    Raises:
        OneshotError: the step waits for the device, or does something else that no graph can hold.
    """
    rest = iter(given)
    ahead = list(islice(rest, FEWEST)) if optimizer else []
    if optimizer is None or len(ahead) < FEWEST:
        yield from map(step, chain(ahead, rest))
        return
    yield step(ahead[0])
    static, shapes = copied(ahead[0]), _shapes(ahead[0])
    replay = captured(step, static)
    for each in chain(ahead[1:], rest):
        if _shapes(each) == shapes:
            for into, tensor in zip(_tensors(static), _tensors(each), strict=True):
                into.copy_(tensor)
            yield copied(replay())
        else:
            yield step(each)


def captured(step: Callable[[G], T], static: G) -> Callable[[], T]:
    """What runs the step on whatever `static` holds then; it writes into the same tensors each time."""
    graph = torch.cuda.CUDAGraph()
    try:
        with recorded() as count, torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = step(static)
    except RuntimeError as error:
        if says_out_of_memory(error):
            raise
        raise OneshotError(
            f"trainer.cuda_graphs=true: a step cannot be made a CUDA graph ({one_line(error)}); use "
            "trainer.cuda_graphs=false"
        ) from error

    def replay() -> T:
        graph.replay()
        count()
        return result

    return replay


def copied(value: Any) -> Any:
    """The same with its tensors in memory of their own."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {name: copied(each) for name, each in value.items()}
    if value is None:
        return None
    each = map(copied, value)
    return value._make(each) if hasattr(value, "_make") else type(value)(each)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for each in value or ():
            yield from _tensors(each)


def _shapes(value: Any) -> list[torch.Size]:
    return [tensor.shape for tensor in _tensors(value)]
