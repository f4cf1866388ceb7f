"""What a loss term may look at; everything is computed on first use and only then."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank, ClientOutputs, LayerStatistics
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.models.trial import are_probabilities
from oneshot_fl.recipe import made_of_ours, needs_of


class Votes(NamedTuple):
    """What the clients say of a batch of images."""

    x: Tensor
    """The images `[b, C, H, W]`, as models see them."""
    y: Tensor
    """The labels that they were made for, `[b]`."""
    P: Tensor
    """The clients' logits, `[m, b, c]`."""
    features: list[Tensor]
    """What enters each client's last layer, `[b, d]` a client; only an ensemble that needs `features` may look."""


class Undeclared(list[Tensor]):
    """Features that were not asked for: an empty list would silently count as 0."""

    def _refuse(self, *_: Any) -> Any:
        raise OneshotError("an ensemble reads `features` without declaring it; add it to the ensemble's `needs`")

    __iter__ = __len__ = __bool__ = __getitem__ = __reversed__ = __contains__ = _refuse


PIXELS_AT_ONCE = 2**18
"""Of the images that models are asked about in one piece, 256 of 32x32."""


def in_pieces(each: Tensor, side: int) -> tuple[Tensor, ...]:
    """Images of so many pixels a side, or their labels, in the pieces that models are asked about.

    However many there are, what a model needs must not grow with them, nor with their area.
    """
    return each.split(max(1, PIXELS_AT_ONCE // side**2))


EnsembleFunction = Callable[[Votes], Tensor]
"""Votes -> the teacher's logits `[b, c]`."""


def ask(bank: ClientBank, x: Tensor, y: Tensor, needs: frozenset[str]) -> Votes:
    """The clients' votes on images `x` `[b, C, H, W]` made for labels `y` `[b]`, for an ensemble of these needs."""
    outputs = bank(x, needs & {"features"})
    return Votes(x, y, outputs.logits, _features(outputs, needs))


def _features(outputs: ClientOutputs, needs: frozenset[str]) -> list[Tensor]:
    """Those that an ensemble of these needs may look at; others may have asked for them too."""
    return outputs.features if "features" in needs else Undeclared()


def answered(ensemble: EnsembleFunction, votes: Votes, key: str = "method.ensemble") -> Any:
    """What an ensemble answers, once it is seen that it leaves the votes as they are: others look at them too.

    Args:
        ensemble: may be any function of the votes.
        votes: tensors that count who writes into them, as those made in torch's inference mode do not.
        key: of the configuration, for the line that says that it does not.

    Raises:
        OneshotError: it writes into them.
    """
    line = (
        f"{key}: the ensemble writes into the votes that it is asked with, which others look at too; let it write "
        "into a copy, for instance votes.P.clone()"
    )
    features = () if isinstance(votes.features, Undeclared) else votes.features
    with only_read((votes.x, votes.y, votes.P, *features), line):
        return ensemble(votes)


@contextmanager
def only_read(tensors: Sequence[Tensor], line: str) -> Iterator[None]:
    """Inside the block nobody writes into these tensors.

    Raises:
        OneshotError: somebody did, with this line.
    """
    before = [tensor._version for tensor in tensors]
    yield
    if [tensor._version for tensor in tensors] != before:
        raise OneshotError(line)


def taught(ensemble: EnsembleFunction, votes: Votes) -> Tensor:
    """The ensemble's logits `[b, c]` on what the clients say of b images.

    Raises:
        OneshotError: it answers something else, or writes into what it is asked with.
    """
    return require_logits(answered(ensemble, votes), images=len(votes.y), classes=votes.P.shape[2])


def require_no_probabilities(ensemble: EnsembleFunction, answer: Tensor) -> None:
    """Whether what one of a user's own answers are logits indeed, which waits for the device.

    Raises:
        OneshotError: they are what a softmax leaves.
    """
    if not made_of_ours(ensemble) and are_probabilities(answer):
        raise OneshotError("method.ensemble: answers with probabilities instead of logits; end it with .log()")


def require_logits(answer: Any, *, images: int, classes: int) -> Tensor:
    """An ensemble's answer as it is; only its shape and type are looked at, which waits for no device.

    Raises:
        OneshotError: it is no tensor of logits `[images, classes]`.
    """
    if isinstance(answer, Tensor) and answer.shape == (images, classes) and answer.is_floating_point():
        return answer
    raise OneshotError(
        f"method.ensemble: answers with {in_words(answer)}, and must answer with logits of shape "
        f"[{images}, {classes}], a row of {classes} classes for each of {images} images"
    )


def require_rows(kept: Any, *, images: int) -> Tensor:
    """What an ensemble remembers of so many images as it is; the pool hands it out image by image.

    Raises:
        OneshotError: it is no tensor with a row for each of them.
    """
    if isinstance(kept, Tensor) and kept.ndim and len(kept) == images:
        return kept
    found = f"a tensor of shape {list(kept.shape)}" if isinstance(kept, Tensor) else type(kept).__name__
    raise OneshotError(
        f"method.ensemble: remember returns {found}, and must return a tensor with a row for each of {images} images"
    )


def in_words(returned: Any) -> str:
    """What a part returned, for the line that says what it must: its type, and a tensor's shape and numbers."""
    told = f" of shape {list(returned.shape)} ({returned.dtype})" if isinstance(returned, Tensor) else ""
    return f"a {type(returned).__name__}{told}"


class View:
    """One batch `x` `[b, C, H, W]` with target labels `y` `[b]`, as the teacher and the student see it.

    `trust` `[b]` says how far an image shows its label, between 0 and 1; wholly where nothing else is said.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        *,
        student: nn.Module | None,
        bank: ClientBank,
        ensemble: EnsembleFunction,
        needs: frozenset[str] = frozenset(),
        trust: Tensor | None = None,
        teacher: Tensor | None = None,
        start: ClientBank | None = None,
    ) -> None:
        self.x, self.y = x, y
        self.trust = torch.ones(len(y), device=y.device) if trust is None else trust
        self._student, self._bank, self._ensemble, self._needs = student, bank, ensemble, needs
        self._start = start
        self._noted: dict[str, list[tuple[Tensor, int]]] = {}
        self._note("x", self.x)
        self._note("y", self.y)
        self._note("trust", self.trust)
        if teacher is not None:
            self.teacher = self._note("teacher", teacher)

    def _note(self, name: str, *tensors: Tensor) -> Tensor:
        """Remember how often these had been written into when they came into being; the first of them as it is."""
        self._noted[name] = [(tensor, tensor._version) for tensor in tensors]
        return tensors[0]

    @property
    def written(self) -> str | None:
        """What somebody has written into since then; of what lies in the same memory the newest. None: nothing."""
        noted = reversed(self._noted.items())
        return next((name for name, held in noted if any(each._version != before for each, before in held)), None)

    @cached_property
    def outputs(self) -> ClientOutputs:
        """The clients' answers, with what else the terms need."""
        outputs = self._bank(self.x, self._needs | (needs_of(self._ensemble) & {"features"}))
        layers = (layer for client in outputs.statistics for layer in client)
        self._note("outputs", outputs.logits, *outputs.features, *chain.from_iterable(layers))
        return outputs

    @cached_property
    def plain_mean(self) -> Tensor:
        """The plain mean of the clients' logits, `[b, c]`."""
        return self._note("plain_mean", self._bank.plain_mean(self.outputs.logits))

    @cached_property
    def teacher(self) -> Tensor:
        """The ensemble's logits P, `[b, c]`."""
        features = _features(self.outputs, needs_of(self._ensemble))
        votes = Votes(self.x, self.y, self.outputs.logits, features)
        return self._note("teacher", taught(self._ensemble, votes))

    @cached_property
    def student(self) -> Tensor:
        """The student's logits, `[b, c]`."""
        if self._student is None:
            raise OneshotError("recite.objective: there is no student yet that a loss term could look at")
        return self._note("student", at_least_float32(self._student(self.x)))

    @cached_property
    def start(self) -> Tensor:
        """Logits `[b, c]` of the student as it began; a term that reads them declares `start`."""
        self._require("start")
        if self._start is None:
            raise OneshotError("only the student's objective (method.student) can compare with how the student began")
        return self._note("start", self._start(self.x).logits[0])

    @property
    def features(self) -> list[Tensor]:
        """What enters each client's last layer, `[b, d]` per client; a term that reads it declares `features`."""
        self._require("features")
        return self.outputs.features

    @property
    def statistics(self) -> list[list[LayerStatistics]]:
        """Batch normalisation statistics per client and layer; a term that reads them declares `statistics`."""
        self._require("statistics")
        return self.outputs.statistics

    def _require(self, need: str) -> None:
        """What nobody declared is not computed, and an empty list would silently count as 0."""
        if need not in self._needs:
            raise OneshotError(f"a loss term reads `{need}` without declaring it; add it to the term's `needs`")
