"""The numbers that a method's card and equations state are those that it runs with: no row of a table shows a typo."""

from collections.abc import Iterator
from typing import Any

import pytest

from oneshot_fl.config.compose import choices, composed, plain

STATED = {
    *("weight", "temperature", "lr", "momentum", "weight_decay", "step", "decay", "epsilon", "balance", "odseta"),
    *("likeness", "overlap", "scale", "sharpness", "power", "doubt", "self_doubt", "self_gated", "pool_counts"),
    *("owners", "nearest", "bound", "share", "roll", "shaken", "without_statistics"),
}
"""What such numbers are called. How many images, steps and rounds there are is a budget's, and FedMHO's tables of
learning rates (`of`) have a test of their own."""
GENERATOR = {"source.optimizer.lr": 0.001}
SGD = {"student_optimizer.momentum": 0.9}
CO_BOOSTING = {
    **GENERATOR,
    **{"objective.hard_ce.weight": 1, "objective.hard_ce.power": 1},  # Eqs. 5-6
    **{"objective.adv.weight": 1, "objective.adv.temperature": 3},  # Eq. 7
    **{"perturb.epsilon": 4 / 255},  # Eqs. 9-10: 8/255 where pixels are in [-1, 1]
    **{"student.kl.weight": 1, "student.kl.temperature": 4},  # Eq. 4
}
DENSE = {
    **GENERATOR,
    **{"objective.ce.weight": 1, "objective.bn.weight": 1, "objective.adv.weight": 1, "objective.adv.temperature": 1},
    **{"student.kl.weight": 1, "student.kl.temperature": 20},
}
FEDMHO = {
    **{"warm_up.student.kl.weight": 1, "warm_up.student.kl.temperature": 1, "warm_up.optimizer.lr": 0.001},
    **{"pool.nearest": 0.8, "student.ce.weight": 1, "student_optimizer.lr": 1e-5},
}
FEDCHORUS = {
    **{"ensemble.power": 0.75, "ensemble.pool_counts": 400},  # Eqs. 7 and 8'
    **{"ensemble.sharpness": 2, "ensemble.doubt": 0},  # Eq. 9
    **{"ensemble.self_gated": 0.3, "ensemble.owners": 1.1, "ensemble.self_doubt": 3},  # Eqs. 9'' and 12
    **{"student.kl.weight": 1, "student.kl.temperature": 2, "student.ce.weight": 1},  # Eqs. 10 and 11
    **{"perturb.share": 1 / 16, "student_optimizer.lr": 0.002},
}
NUMBERS: dict[str, dict[str, float]] = {
    "fedavg": {},
    "ot": {},
    "feddf": {"student.kl.weight": 1, "student.kl.temperature": 1, "student_optimizer.lr": 0.001},
    "dense": DENSE,
    "dense_co_boosting": {
        **DENSE,
        **{"objective.bn.weight": 0, "objective.adv.temperature": 3, "student.kl.temperature": 4},
        **SGD,
        **{"student_optimizer.lr": 0.01, "student_optimizer.weight_decay": 1e-4},
    },
    "co_boosting": {**CO_BOOSTING, "ensemble.step": 0.01, "ensemble.decay": 0.99},  # Eqs. 11-12
    "co_boosting_pp": {**CO_BOOSTING, "ensemble.lr": 1e-5, "ensemble.balance": 0.01},
    "fedhydra": {
        **GENERATOR,
        "ensemble.scale": 1,
        **{"objective.ce.weight": 1, "objective.bn.weight": 1},  # Eqs. 13 and 14
        **{"objective.adv.weight": 1, "objective.adv.temperature": 1},  # Eq. 15
        **{"student.kl.weight": 1, "student.kl.temperature": 1, "student.hard_ce.weight": 1},  # Eqs. 17-19
    },
    "f_dafl": {
        **GENERATOR,
        **{"objective.one_hot.weight": 1, "objective.activation.weight": 0.1, "objective.entropy.weight": 5},
        **{"student.kl.weight": 1, "student.kl.temperature": 4},
    },
    "f_adi": {
        "source.optimizer.lr": 0.05,
        **{"objective.ce.weight": 1, "objective.tv.weight": 2.5e-5, "objective.l2.weight": 1e-5},
        **{"objective.bn.weight": 10, "objective.js.weight": 0.2, "objective.js.temperature": 3},
        **{"student.kl.weight": 1, "student.kl.temperature": 4},
    },
    "fedisca": {
        **{"source.optimizer.lr": 0.05, "source.roll": 2, "ensemble.temperature": 20},
        **{"objective.ce.weight": 1, "objective.tv.weight": 2.5e-5, "objective.bn.weight": 10},
        **{"student.kl.weight": 1, "student.kl.temperature": 20},
        **SGD,
        **{"student_optimizer.lr": 0.001, "student_optimizer.weight_decay": 5e-4},
    },
    "dfdg": {
        **{"source.optimizer.lr": 2e-4, "source.likeness": 1, "source.overlap": 1, "source.temperature": 10},
        **{"objective.ce.weight": 1, "objective.transfer.weight": 1, "objective.transfer.temperature": 10},
        **{"student.kl.weight": 2, "student.kl.temperature": 10},
        **SGD,
        **{"student_optimizer.lr": 0.01, "student_optimizer.weight_decay": 1e-4},
    },
    "intactofl": {
        **GENERATOR,
        **{"ensemble.lr": 0.01, "ensemble.balance": 0.01, "ensemble.odseta": 4 / 255},
        **{"objective.ce.weight": 1, "objective.bn.weight": 1},
        **{"objective.disagreement.weight": 1, "objective.disagreement.temperature": 3},
        **{"student.kl.weight": 1, "student.kl.temperature": 4},
    },
    "fedcvae_ens": {"source.bound": 3, "student.ce.weight": 1, "student_optimizer.lr": 0.001},
    "fedcvae_kd": {
        **{"source.bound": 1, "source.optimizer.lr": 0.01},
        **{"student.ce.weight": 1, "student_optimizer.lr": 0.001},
    },
    "fedcvae_fedmho": {"student.ce.weight": 1, "student_optimizer.lr": 1e-5},
    "fedmho": FEDMHO,
    "fedmho_md": {**FEDMHO, "student.ce.weight": 0.5, "student.kl.weight": 0.5},
    "fedmho_sd": {**FEDMHO, "student.ce.weight": 0.5, "student.kl.weight": 0.5},
    "fedchorus": FEDCHORUS,
    "fedchorus_quick": FEDCHORUS,
}
RECITE = {
    **{"objective.ce.weight": 1, "objective.bn.weight": 1, "objective.tv.weight": 0.05},  # Eqs. 2 to 4
    **{"shaken": 1 / 16, "optimizer.lr": 0.3, "without_statistics": 1 / 3},
}
PROTOCOL = {"generator_optimizer.lr": 0.001, "student_optimizer.lr": 0.01, "student_optimizer.momentum": 0.9}
"""FedHydra, Sec. 4.1.5, which all methods share."""


def _stated(node: dict[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for name, value in node.items():
        if isinstance(value, dict) and name != "of":
            yield from _stated(value, f"{above}{name}.")
        elif name in STATED and isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{above}{name}", value


@pytest.mark.parametrize("method", choices("method"))
def test_a_method_runs_with_the_numbers_of_its_card(method):
    found = dict(_stated(plain(composed(f"method={method}", "data=mnist", "data.root=x").method)))
    assert found == pytest.approx(NUMBERS[method], rel=1e-3)


@pytest.mark.parametrize(("group", "numbers"), [("recite", RECITE), ("distill", PROTOCOL)])
def test_what_methods_share_has_the_numbers_of_its_card(group, numbers):
    assert dict(_stated(plain(composed("data=mnist", "data.root=x")[group]))) == pytest.approx(numbers, rel=1e-3)
