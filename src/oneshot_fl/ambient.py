"""What a caller has told torch for models of its own, which must not reach ours."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

CASTING = ("cpu", "cuda", "mps")
"""Kinds of devices that autocast is switched on for, each by itself."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside the block torch computes as in a process of our own; what the caller has set holds again after it.

    Under autocast models would be others, which the store would then give to those who have none; in inference mode or
    with another default dtype every model would be refused. What a run computes in is what `trainer` says.
    """
    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in filter(torch.is_autocast_enabled, CASTING):
            stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield
