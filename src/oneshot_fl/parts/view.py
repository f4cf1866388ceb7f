"""What a loss term may look at; everything is computed on first use and only then."""

from collections.abc import Callable
from functools import cached_property

from torch import Tensor, nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank, ClientOutputs, LayerStatistics
from oneshot_fl.models.precision import at_least_float32

EnsembleFunction = Callable[[Tensor, Tensor], Tensor]
"""`ensemble(P, y)`: client logits `[m, b, c]` and target labels `[b]` -> teacher logits `[b, c]`."""


class View:
    """One batch `x` `[b, C, H, W]` with target labels `y` `[b]`, as the teacher and the student see it."""

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        *,
        student: nn.Module,
        bank: ClientBank,
        ensemble: EnsembleFunction,
        needs: frozenset[str] = frozenset(),
        teacher: Tensor | None = None,
        start: ClientBank | None = None,
    ) -> None:
        self.x, self.y = x, y
        self._student, self._bank, self._ensemble, self._needs = student, bank, ensemble, needs
        self._start = start
        if teacher is not None:
            self.teacher = teacher

    @cached_property
    def outputs(self) -> ClientOutputs:
        """The clients' answers, with what else the terms need."""
        return self._bank(self.x, self._needs)

    @cached_property
    def teacher(self) -> Tensor:
        """The ensemble's logits P, `[b, c]`."""
        return self._ensemble(self.outputs.logits, self.y)

    @cached_property
    def student(self) -> Tensor:
        """The student's logits, `[b, c]`."""
        return at_least_float32(self._student(self.x))

    @cached_property
    def start(self) -> Tensor:
        """Logits `[b, c]` of the student as it began; a term that reads them declares `start`."""
        self._require("start")
        if self._start is None:
            raise OneshotError("only the student's objective (method.student) can compare with how the student began")
        return self._start(self.x).logits[0]

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
