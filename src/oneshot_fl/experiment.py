"""What a configuration becomes at the door: one typed, frozen object that everything downstairs works on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.parts.attacks import poisons
from oneshot_fl.parts.method import Method
from oneshot_fl.parts.slots import Ensemble, Hearing, UploadStep
from oneshot_fl.phases.clients.train import ClientPlan
from oneshot_fl.phases.distill import Distillation
from oneshot_fl.phases.fidelity import FidelityReference
from oneshot_fl.phases.global_model import StudentPlan
from oneshot_fl.phases.prepare import DataPlan, PartitionPlan, ProxyPlan
from oneshot_fl.phases.privacy import Audit
from oneshot_fl.phases.recite import Recitation
from oneshot_fl.phases.stratify import Stratification
from oneshot_fl.phases.trainer import TrainerSettings
from oneshot_fl.phases.validate import Images
from oneshot_fl.recipe import Recipe
from oneshot_fl.seeds import derive_seed
from oneshot_fl.values import BatchSize, Count

P = TypeVar("P", Stratification, Recitation, Distillation)


@dataclass(frozen=True)
class Evaluation:
    """What is tested besides clients and server."""

    batch_size: BatchSize
    ensembles: Mapping[str, Recipe[Ensemble]]
    fidelity: FidelityReference | None
    """What synthetic images are measured by; None: they are not."""
    privacy: Audit | None
    """How privacy is measured; None: it is not."""
    validation: Images | None
    """What images the student is validated by; None: it is not."""


@dataclass(frozen=True)
class Plots:
    """How a run's figures are written."""

    format: Literal["png", "svg", "pdf", "none"]
    """PNG files are for the report and the loggers; another format stands beside them. `none`: no figures at all."""


@dataclass(frozen=True)
class Serving:
    """What the server does with uploads, whoever made them, in the order of the data flow."""

    gate: Recipe[UploadStep] | None
    generator: Recipe[ConvGenerator]
    stratification: Stratification
    recitation: Recitation
    hearing: Recipe[Hearing] | None
    method: Method
    student: StudentPlan
    distillation: Distillation
    calibrates: bool
    """Whether a temperature is fitted to the method's images."""
    rate_keys: Mapping[str, str]
    """Of the learning rates in the distillation, by what they train: for what is said when a model diverges."""
    evaluation: Evaluation
    store: Path
    workers: Count
    """Processes that train clients, or work on their uploads, side by side."""
    trainer: TrainerSettings
    loggers: tuple[Recipe[Any], ...]
    """Lightning's loggers; `save_dir`, and what only Weights & Biases asks for, are told when the run begins."""
    record: Mapping[str, Any]
    """What the run is, for reports and comparisons: built-in types (`config.record`)."""
    config: Mapping[str, Any]
    """The whole configuration with every value resolved, for the run's folder."""

    @property
    def needs(self) -> frozenset[str]:
        """What the method's parts and the hearing need, and what those phases need that only some ask for."""
        asked = self.method.needs | (self.hearing.needs if self.hearing else frozenset())
        return asked | (self.recitation.needs if "recitals" in asked else frozenset())


@dataclass(frozen=True)
class Experiment(Serving):
    """One run before it begins: the clients and their data, and what the server does with what they upload."""

    data: DataPlan
    partition: PartitionPlan
    proxy: ProxyPlan
    clients: tuple[ClientPlan, ...]
    attack: Recipe[Any] | None
    """An `UploadStep`, or a `Poison`, which hostile clients have in their plans."""
    communication_rounds: Count
    plots: Plots

    def of_exchange(self, number: int) -> "Experiment":
        """The same for one communication round, 0 the one-shot one: in each the server draws anew, as clients do."""
        if number == 0:
            return self
        return replace(
            self,
            stratification=_drawing_anew(self.stratification, number),
            recitation=_drawing_anew(self.recitation, number),
            distillation=_drawing_anew(self.distillation, number),
        )

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """Of all models that will be trained: the clients', the server's, and those that something is measured by."""
        measures = (self.evaluation.fidelity, self.evaluation.privacy)
        measuring = (each.architecture for each in measures if each is not None)
        return *(plan.architecture for plan in self.clients), *self.student.architectures, *measuring

    @property
    def attack_on_uploads(self) -> Recipe[UploadStep] | None:
        """The attack, unless hostile clients are poisoned by it before they train (`ClientPlan.poison`)."""
        return None if self.attack is None or poisons(self.attack) else self.attack


def _drawing_anew(phase: P, number: int) -> P:
    return replace(phase, seed=derive_seed(phase.seed, "communication round", number))
