"""How much memory a model takes over images, worked out on torch's `meta` device, which allocates nothing."""

import copy
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from torch import Tensor, UntypedStorage, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def memory_here(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may have: the machine's, or what its container or job is allowed of them."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_allowed(root)])


def _allowed(root: Path) -> Iterator[int]:
    """The limits of the control groups that hold this process, of both versions of them, under a file system's root."""
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # a container may see itself at the top and still be told its path on the host
        inside = PurePosixPath(path.lstrip("/"))
        folders = [top / each for each in (inside, *inside.parents)]
        limits = [(folder / name).read_text().strip() for folder in folders if (folder / name).is_file()]
        yield from (int(limit) for limit in limits if limit != "max")


def bytes_held(model: nn.Module, *inputs: Tensor) -> int:
    """The most bytes that a forward pass holds at once, besides the model and what it is given.

    Where gradients are asked for, what a backward pass will need is held until the end. A pass that raises counts as
    far as it gets. What a layer needs while it computes is not seen: on a CPU a residual network takes a fifth more
    with gradients, and up to two thirds more without.

    Args:
        model: in the mode that counts; it is not called itself, but a copy without numbers, so whatever its forward
            keeps is kept elsewhere.
        inputs: what it is called with.
    """
    held = _Held()
    with suppress(Exception):  # what it raises without numbers is no sign of what it does with them
        bare = {each: _without_numbers(each) for each in (*model.parameters(), *model.buffers(), *inputs)}
        held.leave_out(bare.values())
        asked = copy.deepcopy(model, {id(each): other for each, other in bare.items()})
        with held:
            asked(*(bare[each] for each in inputs))
    return held.most


def _without_numbers(tensor: Tensor) -> Tensor:
    return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)


class _Held(TorchDispatchMode):
    """Counts the bytes that operators have made and nobody has let go of."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._alive = set[int]()

    def leave_out(self, known: Iterable[Tensor]) -> None:
        """Of tensors that are there already, what operators make is only views."""
        self._alive.update(each.untyped_storage()._cdata for each in known)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        for each in tree_leaves(answer):
            if isinstance(each, Tensor):
                self._count(each.untyped_storage())
        return answer

    def _count(self, storage: UntypedStorage) -> None:
        """Of views and of what is computed in place only once."""
        place = storage._cdata
        if place not in self._alive:
            self._alive.add(place)
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._let_go, place, storage.nbytes())

    def _let_go(self, place: int, size: int) -> None:
        self._alive.remove(place)
        self.now -= size
