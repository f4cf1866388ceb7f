"""Where the server's images come from."""

from collections.abc import Callable, Iterator
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.models.generators import Generator

Score = Callable[[Tensor, Tensor], Tensor]
"""Images and target labels -> the generator's loss, a scalar."""


Minimise = Callable[[Tensor], None]
"""One optimiser step on a loss."""


class Source(Protocol):
    """What the loop asks of a source of images; it is an `nn.Module` too, because the loop saves its state."""

    needs: ClassVar[frozenset[str]]
    reset: bool
    """Whether every round begins anew, which makes the optimiser forget too."""

    def begin(self, rng: torch.Generator) -> None:
        """Draw what the first round begins with."""

    def make(self, score: Score, minimise: Minimise, rng: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """One round's images `[n, C, H, W]` as models see them, and the labels `[n]` they were made for, if any."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """What `minimise` steps."""

    def state_dict(self) -> dict[str, Tensor]:
        """What a later round depends on."""


class ProxySource(nn.Module):
    """Images that the server has (FedDF): nothing is made, and nothing is known of their labels."""

    needs: ClassVar[frozenset[str]] = frozenset({"proxy"})
    reset = False

    def __init__(self, proxy: Proxy, *, spec: DataSpec) -> None:
        super().__init__()
        self.proxy, self.spec = proxy, spec

    def begin(self, rng: torch.Generator) -> None:
        """Nothing to draw."""

    def make(self, score: Score, minimise: Minimise, rng: torch.Generator) -> tuple[Tensor, None]:
        """All of them, as models see them."""
        return self.spec.to_input(self.proxy.images), None


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

    needs: ClassVar[frozenset[str]] = frozenset()

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

    def begin(self, rng: torch.Generator) -> None:
        """The generator's first weights."""
        self.generator.reset(rng)

    def make(self, score: Score, minimise: Minimise, rng: torch.Generator) -> tuple[Tensor, Tensor]:
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
