"""Where the server's images come from."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from oneshot_fl.models.generators import Generator
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.parts.slots import Made, Turn
from oneshot_fl.parts.uploads import Server
from oneshot_fl.values import BatchSize, Count


class ProxySource(nn.Module):
    """Images that the server has (FedDF): nothing is made, and nothing is known of their labels."""

    needs: ClassVar[frozenset[str]] = frozenset({"proxy"})
    unlabelled: ClassVar[bool] = True
    optimizer = None
    reset = False

    def __init__(self, server: Server) -> None:
        super().__init__()
        if server.proxy is None:
            raise ValueError("proxy images are declared as a need and have to be there")
        self.proxy, self.spec = server.proxy, server.spec

    def begin(self, rng: torch.Generator) -> None:
        """Nothing to draw."""

    def make(self, turn: Turn) -> Made:
        """All of them."""
        return Made(self.spec.to_input(self.proxy.images), None)


class GeneratorSource(nn.Module):
    """T_G generator steps against the objective, from one draw of noise and labels a round.

    Labels are drawn uniformly from all classes.

    Args:
        server: with the data spec.
        generator: builds from that spec what maps noise to images; its parameters are what `minimise` steps.
        optimizer: of the generator.
        batch_size: b.
        steps: T_G.
        reset: new random generator weights (and optimiser) every round instead of going on with the old ones.
        keep: the batch that leaves: that of the `last` step, or of the step with the lowest loss (`best`).
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    scored: ClassVar[bool] = True
    counted_by: ClassVar[str] = "batch_size"

    def __init__(
        self,
        server: Server,
        *,
        generator: Callable[..., Generator],
        optimizer: OptimizerFactory,
        batch_size: BatchSize,
        steps: Count,
        reset: bool,
        keep: Literal["last", "best"],
    ) -> None:
        super().__init__()
        self.generator, self.classes = generator(spec=server.spec), server.spec.classes
        self.optimizer, self.batch_size = optimizer, batch_size
        self.steps, self.reset, self.keep = steps, reset, keep

    def begin(self, rng: torch.Generator) -> None:
        """The generator's first weights."""
        self.generator.reset(rng)

    def make(self, turn: Turn) -> Made:
        """One round's batch of b images."""
        if self.reset:
            self.generator.reset(turn.rng)
        z = self.generator.sample_noise(self.batch_size, turn.rng)
        y = torch.randint(self.classes, (self.batch_size,), generator=turn.rng).to(z.device)

        def step() -> tuple[Tensor, Tensor]:
            x = self.generator(z)
            loss = turn.score(x, y)
            turn.minimise(loss)
            return x.detach(), loss.detach()

        kept: tuple[Tensor, Tensor] | None = None
        for new in turn.repeated(step, self.steps):
            kept = self._choose(kept, new)
        assert kept is not None, "steps is at least 1 (checked before training)"
        return Made(kept[0], y)

    def _choose(self, kept: tuple[Tensor, Tensor] | None, new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Images and loss to keep; decided on the device, without waiting for it."""
        if kept is None or self.keep == "last":
            return new
        return torch.where(new[1] < kept[1], new[0], kept[0]), torch.minimum(new[1], kept[1])
