"""Where models begin: an architecture is chosen but not built, because nobody has seen the data yet."""

from dataclasses import dataclass
from itertools import chain

from torch import nn
from torch.nn.parameter import is_lazy

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.layout import as_it_runs
from oneshot_fl.recipe import Recipe
from oneshot_fl.seeds import seeded


@dataclass(frozen=True)
class Architecture:
    """How to build a model, and the ways in which it can begin."""

    recipe: Recipe[nn.Module]

    @property
    def name(self) -> str:
        """The word that a user chooses it by."""
        return self.recipe.name

    def build(self, spec: DataSpec) -> nn.Module:
        """A model with weights from the global random state; of somebody else's code, in a layout that it runs in.

        Raises:
            OneshotError: the size of a layer is not known before it has seen an image.
        """
        model = self.recipe(spec=spec)
        if not self.is_foreign or not isinstance(model, nn.Module):
            return model
        for name, tensor in chain(model.named_parameters(), model.named_buffers()):
            if is_lazy(tensor):
                raise OneshotError(
                    f"{self.name}: the size of {name} is not known before an image is seen; give its layer the number "
                    "of its inputs, as nn.Linear(1024, 10) in the place of nn.LazyLinear(10)"
                )
        return as_it_runs(model, spec)

    @property
    def is_foreign(self) -> bool:
        """Whether neither we nor torchvision wrote it."""
        return not str(self.recipe.settings.get("_target_")).startswith(("oneshot_fl.", "torchvision."))

    def as_clients_begin(self, spec: DataSpec, seed: int, client: int | None = None) -> nn.Module:
        """Initial weights depend on seed and architecture only: equal clients start equal, as FedAvg asks.

        Args:
            client: its number, where each begins at weights of its own.
        """
        with seeded(seed, "initial weights", self.name, *(() if client is None else (client,))):
            return self.build(spec)

    def student(self, spec: DataSpec, seed: int) -> nn.Module:
        """A server model with weights of its own, which no client began at."""
        with seeded(seed, "student weights", self.name):
            return self.build(spec)


@dataclass(frozen=True)
class InitialModel:
    """Where local training begins after the first communication round: at the server's model."""

    model: nn.Module
    key: str
    communication_round: int
    """1 for the first exchange after the one-shot one."""
