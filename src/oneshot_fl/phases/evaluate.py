"""Phase 4, evaluation: every client, the ensembles themselves, and the server on the test set."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics.classification import MulticlassConfusionMatrix

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.models.soundness import TURNED_AWAY
from oneshot_fl.parts.ensembles import label_free, needs_several
from oneshot_fl.parts.slots import Ensemble
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import EnsembleFunction, ask
from oneshot_fl.phases.abstention import Coverage, clients_support, coverages
from oneshot_fl.phases.class_figures import (
    ClassFigures,
    accuracy,
    balanced_accuracy,
    calibration_error,
    class_figures,
)
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.trainer import trainer_of
from oneshot_fl.recipe import Recipe, needs_of
from oneshot_fl.seeds import seeded


@dataclass(frozen=True)
class Accuracies:
    """Fractions of the test set."""

    clients: list[float]
    ensembles: dict[str, float]
    server: float


@dataclass(frozen=True)
class Evaluated:
    """What the test set told: of everybody two accuracies, of the server all there is to tell."""

    accuracies: Accuracies
    balanced: Accuracies
    """Means over the classes that have a test image."""
    server: ClassFigures
    calibrated_ece: float
    """The server's calibration error once its logits are divided by the temperature."""
    abstention: list[Coverage]
    """How right the server is where it answers only the images of which it, or the clients, are surest."""


def tested_ensembles(
    rows: Mapping[str, Recipe[Ensemble]],
    own: Recipe[Ensemble] | None,
    server: Server,
    learned: Mapping[str, Tensor],
) -> dict[str, Ensemble]:
    """The ensembles to test: the rows as far as the server has what they need, and the method's own as it learned.

    Args:
        learned: the state of the method's own, empty where it had no round to learn in.
    """
    if not server.uploads.models:
        return {}
    possible = {name: row for name, row in rows.items() if not server.lacks(row.needs)}
    found = {name: _made(name, row, server) for name, row in possible.items()}
    if own is not None:
        found[own.name] = _made(own.name, own, server)
        if learned:
            cast(nn.Module, found[own.name]).load_state_dict(dict(learned))
    return found


def _made(name: str, ensemble: Recipe[Ensemble], server: Server) -> Ensemble:
    """The same whatever was drawn before: a user's may begin with weights of its own."""
    with seeded(0, "ensemble", name):
        return ensemble(server)


class EvaluateModule(LightningModule):
    """One pass over the test set: every client is asked once, for all ensembles that do not ask for themselves."""

    def __init__(
        self,
        bank: ClientBank,
        server: nn.Module,
        ensembles: Mapping[str, EnsembleFunction],
        *,
        known: Tensor | None,
        classes: int,
        temperature: float,
    ) -> None:
        super().__init__()
        self.temperature, self.known = temperature, known
        self.bank, self.server, self.names = bank, server, list(ensembles)
        self.ensembles = nn.ModuleList(ensembles.values())  # type: ignore[arg-type]
        self.needs = frozenset().union(*map(needs_of, ensembles.values()))
        voices = len(bank.models) + len(ensembles) + 1
        self.confusions = nn.ModuleList(MulticlassConfusionMatrix(num_classes=classes) for _ in range(voices))
        """Of the server, the clients and the ensembles, in this order: an ensemble may be called as any of them."""
        self._logits: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._support: list[Tensor] = []

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Count everybody's answers on images `[b, C, H, W]`, and keep the server's."""
        x, y = batch
        logits = at_least_float32(self.server(x))
        scores = [logits, *(self._of_clients(x, y, logits) if self.bank.models else ())]
        for confusion, score in zip(self._confusions(), scores, strict=True):
            confusion.update(_named(score, y), y)
        self._logits.append(logits)
        self._labels.append(y)

    def _of_clients(self, x: Tensor, y: Tensor, server: Tensor) -> list[Tensor]:
        """Scores of the clients, then of the ensembles, which see votes without the test labels (`label_free`).

        Raises:
            OneshotError: an ensemble writes into the votes, so that clients and other ensembles would be tested on it.
        """
        with torch.inference_mode(False), torch.no_grad():  # else no tensor counts who writes into it
            votes = ask(self.bank, x.clone(), y.clone(), self.needs)
            self._support.append(clients_support(votes.P, server, self.known))
            named = zip(self.names, self.ensembles, strict=True)
            answers = [
                label_free(each, votes._replace(P=votes.P.clone()), f"evaluate.ensembles.{name}, or method.ensemble")
                for name, each in named
            ]
            return [*votes.P, *answers]

    def _confusions(self) -> Iterator[MulticlassConfusionMatrix]:
        return (cast(MulticlassConfusionMatrix, each) for each in self.confusions)

    def results(self) -> Evaluated:
        """Of everything that was counted.

        Raises:
            OneshotError: the server answers with what is no number, so that nothing can be said of it.
        """
        counts = [confusion.compute().cpu() for confusion in self._confusions()]
        logits, y = torch.cat(self._logits).cpu(), torch.cat(self._labels).cpu()
        if not logits.isfinite().all():
            raise OneshotError(
                f"server: its answers to test images are not finite; {TURNED_AWAY}, where they make it so"
            )
        sure = logits.double() / self.temperature
        return Evaluated(
            accuracies=self._fractions(accuracy, counts),
            balanced=self._fractions(balanced_accuracy, counts),
            server=class_figures(logits, y, temperature=self.temperature),
            calibrated_ece=calibration_error(sure, y),
            abstention=coverages(sure, y, self._agreement()),
        )

    def _agreement(self) -> Tensor | None:
        """The clients' support on all test images; None where none was asked, or one answers with what is no number."""
        support = torch.cat(self._support).cpu() if self._support else None
        return support if support is not None and support.isfinite().all() else None

    def _fractions(self, fraction: Callable[[Tensor], float], counts: Iterable[Tensor]) -> Accuracies:
        server, *others = map(fraction, counts)
        m = len(self.bank.models)
        return Accuracies(others[:m], dict(zip(self.names, others[m:], strict=True)), server)


def _named(scores: Tensor, y: Tensor) -> Tensor:
    """The class that each of the scores `[b, c]` names; a wrong one where they are no numbers, which argmax hides."""
    named = scores.argmax(dim=1)
    return torch.where(scores.isnan().any(dim=1), (y + 1) % scores.shape[1], named)


def evaluate(
    test: ImageBatches,
    clients: list[nn.Module],
    server: nn.Module,
    ensembles: Mapping[str, EnsembleFunction],
    *,
    known: Tensor | None = None,
    temperature: float = 1.0,
    context: Context,
) -> Evaluated:
    """Test clients, ensembles and server, calibrated by `temperature`, on one pass over `test`.

    In single precision, whatever they were trained in: so `predict` and `load` ask the model, and what exports are of.

    Args:
        known: which classes each client has an output for, bool `[m, c]`; None: all have all.
    """
    if any(map(needs_several, ensembles.values())):
        test = test.without_single()
    bank = ClientBank(clients, mode="loop")
    classes = test.spec.classes
    module = EvaluateModule(bank, server, ensembles, known=known, classes=classes, temperature=temperature)
    with trainer_of(module, replace(context.trainer, precision="32-true")) as trainer:
        trainer.test(module, dataloaders=test, verbose=False)
    return module.results()
