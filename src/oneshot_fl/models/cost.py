"""What passes through models cost, in multiply-accumulates."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from oneshot_fl.models.mode import evaluating


def multiply_accumulates(
    model: nn.Module, *inputs: Tensor, rules: Mapping[Any, Callable[..., int]] | None = None
) -> int:
    """Multiplications that a forward pass in evaluation mode adds up: convolutions, also transposed, and linear layers.

    Those of attention count too, and its products of queries, keys and values; what `nn.LSTM` computes in one operator
    is not seen.

    Inputs of one sample give the cost of a sample; models and inputs on the meta device compute nothing.

    Args:
        rules: other ways to count some operators, in floating-point operations (`FlopCounterMode.custom_mapping`).
    """
    counting = FlopCounterMode(display=False, custom_mapping=dict(rules or {}))
    with torch.no_grad(), evaluating(model), _by_its_products(), counting as counter:
        model(*inputs)
    return counter.get_total_flops() // 2


@contextmanager
def _by_its_products() -> Iterator[None]:
    """Attention product by product: fused operators, of a layer or of its products, are none that are counted."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


TRAINED, PASSED, ASKED = 3, 2, 1
"""Forward passes that a pass counts as: the gradient of weights costs one more, that of what enters another."""


class Passes:
    """Counts what passes through models cost while they are watched.

    A pass that keeps a graph counts with the backward pass that follows. Only calls of the models themselves are seen,
    the outermost of nested ones; matrices that a loss multiplies, and activations that are computed again to save
    memory, are not.
    """

    def __init__(self, macs: int = 0) -> None:
        self.macs = macs
        self._one: dict[tuple[Any, ...], int] = {}
        self._depth = 0

    @contextmanager
    def watched(self, models: Iterable[nn.Module]) -> Iterator[None]:
        """Count the calls of these models inside the block."""
        handles = [
            handle
            for model in dict.fromkeys(models)
            for handle in (model.register_forward_pre_hook(self._enter), model.register_forward_hook(self._leave))
        ]
        _counting.append(self)
        try:
            yield
        finally:
            _counting.remove(self)
            for handle in handles:
                handle.remove()

    def _enter(self, model: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._depth += 1

    def _leave(self, model: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.macs += len(inputs[0]) * self._times(model, output) * self._of_one(model, inputs)

    def _times(self, model: nn.Module, output: Any) -> int:
        answer = output if isinstance(output, Tensor) else output[0]
        if not answer.requires_grad:
            return ASKED
        return TRAINED if any(parameter.requires_grad for parameter in model.parameters()) else PASSED

    def _of_one(self, model: nn.Module, inputs: tuple[Any, ...]) -> int:
        """Found out once for every model and shape."""
        key = (id(model), *(tuple(each.shape[1:]) for each in inputs if isinstance(each, Tensor)))
        if key not in self._one:
            self._depth += 1  # what is asked here is no pass of anybody's
            self._one[key] = of_one(model, *inputs)
            self._depth -= 1
        return self._one[key]


_counting: list[Passes] = []
"""Those that watch models now."""


@contextmanager
def recorded() -> Iterator[Callable[[], None]]:
    """What `Passes` see inside the block is recorded and not run: it counts whenever the function is called."""
    before = [(passes, passes.macs) for passes in _counting]
    once: list[tuple[Passes, int]] = []

    def count() -> None:
        for passes, macs in once:
            passes.macs += macs

    yield count
    for passes, macs in before:
        once.append((passes, passes.macs - macs))
        passes.macs = macs


def of_one(model: nn.Module, *inputs: Any) -> int:
    """Multiply-accumulates of one sample's forward pass; `inputs` are a batch's, and whatever else the call is given.

    Two samples of zeros are asked, because batch statistics need two; modes and random states stay as they are.
    """
    two = [each.new_zeros(2, *each.shape[1:]) if isinstance(each, Tensor) else each for each in inputs]
    with _eager(model), torch.random.fork_rng(devices=_devices(two)):
        return multiply_accumulates(model, *two) // 2


def _devices(inputs: Iterable[Any]) -> list[int]:
    return sorted({each.device.index or 0 for each in inputs if isinstance(each, Tensor) and each.is_cuda})


@contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Layers that torch compiles as they are written: counting looks at every operation."""
    compiled = {module: module._compiled_call_impl for module in model.modules() if module._compiled_call_impl}
    for module in compiled:
        module._compiled_call_impl = None
    try:
        yield
    finally:
        for module, call in compiled.items():
            module._compiled_call_impl = call
