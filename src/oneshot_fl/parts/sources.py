"""Where the server's images come from."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from oneshot_fl.models.generators import Generator

Score = Callable[[Tensor, Tensor], Tensor]
"""Images and target labels -> the generator's loss, a scalar."""


class GeneratorSource(nn.Module):
    """T_G generator steps against the objective, from one draw of noise and labels a round.

    Args:
        generator: maps noise to images; its parameters are what `minimise` steps.
        classes: c; labels are drawn uniformly from them.
        batch_size: b.
        steps: T_G.
        reset: new random generator weights (and optimiser) every round instead of going on with the old ones.
        keep: the batch that leaves: that of the `last` step, or of the step with the lowest loss (`best`).
    """

    def __init__(
        self,
        generator: Generator,
        *,
        classes: int,
        batch_size: int,
        steps: int,
        reset: bool,
        keep: Literal["last", "best"],
    ) -> None:
        super().__init__()
        self.generator, self.classes, self.batch_size = generator, classes, batch_size
        self.steps, self.reset, self.keep = steps, reset, keep

    def make(self, score: Score, minimise: Callable[[Tensor], None], rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """One round's batch: images `[b, C, H, W]`, detached, and the labels `[b]` they were made for."""
        if self.reset:
            self.generator.reset(rng)
        z = self.generator.sample_noise(self.batch_size, rng)
        y = torch.randint(self.classes, (self.batch_size,), generator=rng).to(z.device)
        kept: tuple[Tensor, Tensor] | None = None
        for _ in range(self.steps):
            x = self.generator(z)
            loss = score(x, y)
            minimise(loss)
            kept = self._choose(kept, (x.detach(), loss.detach()))
        assert kept is not None, "steps is at least 1 (checked before training)"
        return kept[0], y

    def _choose(self, kept: tuple[Tensor, Tensor] | None, new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Images and loss to keep; decided on the device, without waiting for it."""
        if kept is None or self.keep == "last":
            return new
        return torch.where(new[1] < kept[1], new[0], kept[0]), torch.minimum(new[1], kept[1])
