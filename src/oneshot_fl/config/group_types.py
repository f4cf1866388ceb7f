"""The types of what each group of the configuration without a `_target_` takes, and of what stands alone at its top."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_origin

from oneshot_fl.config.rules import Parameter, parameters_of
from oneshot_fl.recipe import Recipe
from oneshot_fl.values import (
    BatchSize,
    Clients,
    Count,
    CountOrZero,
    LearningRate,
    Name,
    NotNegative,
    PathText,
    Rule,
    Seed,
    Width,
)

Optimizer = Mapping[str, Any]
"""A node that `check_optimizer` looks into."""
Fidelity = Annotated[Mapping[str, Any], Rule("a group of settings (evaluate=fidelity)", bool)]
Privacy = Annotated[Mapping[str, Any], Rule("a group of settings (evaluate=privacy)", bool)]
Entry = NotNegative | str | list[NotNegative | str] | dict[str, NotNegative | str | list[str] | dict[str, NotNegative]]
LOOKUP = Parameter(dict[str, Entry], required=False)
"""Tables that other values are looked up in."""
TOP: dict[str, Any] = {
    "seed": Seed,
    "server_model": Name | None,
    "communication_rounds": Clients,
    "workers": Clients,
    "development": bool,
    "data_root": PathText,
    "store": PathText,
    "study": PathText | int,
}
SLOTS: dict[str, bool] = {"init": True, "ensemble": False, "perturb": False, "pool": True, "source": True}
"""The slots that hold one part each, and whether a method that makes images must fill them."""


def _of(cls: type, *names: str) -> dict[str, Parameter]:
    """What a dataclass takes, or only those of its fields; its recipes are optimisers' nodes here."""
    taken = parameters_of(cls)
    return {
        name: taken[name]._replace(hint=Optimizer) if get_origin(taken[name].hint) is Recipe else taken[name]
        for name in names or taken
    }


@cache
def tables() -> dict[str, dict[str, Any]]:
    """Everything that each group without a `_target_` takes; whatever else is set in it is an error."""
    from oneshot_fl.experiment import Plots
    from oneshot_fl.parts.slots import Schedule  # torch and lightning: not for --help
    from oneshot_fl.phases.clients.training import Training
    from oneshot_fl.phases.distill import Distillation
    from oneshot_fl.phases.fidelity import FidelityReference
    from oneshot_fl.phases.privacy import Audit
    from oneshot_fl.phases.recite import Recitation
    from oneshot_fl.phases.stratify import Stratification
    from oneshot_fl.phases.trainer import TrainerSettings
    from oneshot_fl.phases.validate import Images

    epochs = dict.fromkeys(("local_epochs", "local_epochs_multi_round", "local_epochs_cvae", "rounds"), CountOrZero)
    return {
        "budget": {"name": Name, **epochs, "generator_steps": Count, "generator_width": Width, "of": LOOKUP},
        "clients": {
            **_of(Training),
            "lr_of": dict[str, LearningRate] | None,
            "kinds": Any,
            "cvae": Mapping[str, Any],
            "of": LOOKUP,
        },
        "clients.cvae": _of(Training, "epochs", "batch_size", "optimizer"),
        "stratify": _of(Stratification),
        "recite": {**_of(Recitation), "generator": Mapping[str, Any], "objective": Mapping[str, Any]},
        "distill": {
            **_of(Distillation),
            "generator_steps": Count,
            "generator_optimizer": Optimizer,
            "student_optimizer": Optimizer,
            "student_schedule": Schedule,
            "calibrate": bool,
        },
        "evaluate": {
            "ensembles": Mapping[str, Any],
            "batch_size": BatchSize,
            "fidelity": Fidelity | None,
            "validation": Images | None,
            "privacy": Privacy | None,
        },
        "evaluate.fidelity": {
            **_of(Training, "epochs", "batch_size", "optimizer", "seed"),
            **_of(FidelityReference, "samples"),
            "model": Name | None,
        },
        "evaluate.privacy": {
            **_of(Training, "epochs", "batch_size", "optimizer", "seed"),
            **_of(Audit, "references", "samples"),
            "model": Name | None,
        },
        "trainer": _of(TrainerSettings),
        "plots": _of(Plots),
        "method": {
            "name": Name,
            **dict.fromkeys(SLOTS, Parameter(Any, required=False)),
            "objective": Parameter(Mapping[str, Any], required=False),
            "student": Parameter(Mapping[str, Any], required=False),
            "warm_up": Parameter(Mapping[str, Any] | None, required=False),
            "student_optimizer": Parameter(Optimizer | None, required=False),
            "student_schedule": Parameter(Schedule | None, required=False),
            "per_architecture": Parameter(bool, required=False),
            "of": LOOKUP,
        },
        "method.warm_up": {"passes": CountOrZero, "student": Mapping[str, Any], "optimizer": Optimizer},
    }
