"""How the student begins."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.errors import NothingLeftError
from oneshot_fl.models.structure import structure
from oneshot_fl.parts.uploads import Server, Uploads


class Fresh:
    """The student as it was built: random weights of its own, other than those that the clients began at."""

    needs: ClassVar[frozenset[str]] = frozenset()
    untrained: ClassVar[bool] = True
    """Nothing that a client has learned is in it."""

    def __init__(self, server: Server) -> None:
        pass

    def __call__(self, student: nn.Module) -> nn.Module:
        """The student itself."""
        return student


class AsClientsBegan:
    """The weights that all clients of the student's architecture began at: the server sent them, so it has them.

    Whoever sees `needs` builds the student with those of the first communication round.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"clients_start"})
    untrained: ClassVar[bool] = True

    def __init__(self, server: Server) -> None:
        self.start = server.start

    def __call__(self, student: nn.Module) -> nn.Module:
        """The student itself; in a later communication round with the weights that its clients began at loaded."""
        if self.start is not None:
            student.load_state_dict(self.start.model.state_dict())
        return student


class Average:
    """Weights and buffers of the clients of the student's architecture averaged by numbers of samples.

    McMahan et al. 2017, Alg. 1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "same_architecture"})

    def __init__(self, server: Server) -> None:
        self.uploads = server.uploads

    def __call__(self, student: nn.Module) -> nn.Module:
        """The student with the average loaded.

        Raises:
            NothingLeftError: no client has its architecture, because all that had it were turned away.
        """
        states, sizes = _alike(student, self.uploads)
        if not states:
            raise NothingLeftError(
                "method/init=average: no classifier of the server's architecture is left, or of one of them where it "
                "has several; all of them were turned away; choose one that is left, server_model=NAME"
            )
        student.load_state_dict(mean_state(states, sizes))
        return student


class AverageWhereAlike:
    """The plain mean of the clients of the student's own architecture; fresh where there is none (FedDF)."""

    needs: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[frozenset[str]] = frozenset({"classifiers"})
    """What it makes something of where it is there."""

    def __init__(self, server: Server) -> None:
        self.uploads = server.uploads

    def __call__(self, student: nn.Module) -> nn.Module:
        """The student with that mean loaded."""
        states, _ = _alike(student, self.uploads)
        if states:
            student.load_state_dict(mean_state(states, [1] * len(states)))
        return student


def _alike(student: nn.Module, uploads: Uploads) -> tuple[list[dict[str, Tensor]], list[int]]:
    """State dicts and numbers of samples of the clients of the student's architecture.

    Tensors alone would not tell: weights of two activations have a mean that neither of them works with.
    """
    wanted = structure(student)
    pairs = zip(uploads.models, uploads.sizes, strict=True)
    found = [(model.state_dict(), size) for model, size in pairs if structure(model) == wanted]
    return [state for state, _ in found], [size for _, size in found]


def mean_state(states: list[dict[str, Tensor]], sizes: list[int]) -> dict[str, Tensor]:
    """State dicts of one architecture averaged by numbers of samples.

    Integer buffers (a count of batches) are the first one's: but for a BatchNorm of `momentum=None`, which trains on by
    that count, no layer computes with them.
    """
    weights = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    return {name: _mean([state[name] for state in states], weights) for name in states[0]}


def _mean(tensors: list[Tensor], weights: Tensor) -> Tensor:
    if not tensors[0].is_floating_point():
        return tensors[0]
    stacked = torch.stack(tensors).double()
    return torch.einsum("m,m...->...", weights.to(stacked.device), stacked).to(tensors[0].dtype)
