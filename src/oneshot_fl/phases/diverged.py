"""The line that says that the server's model diverged, and which learning rates to lower, or which part is to blame."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.soundness import first_unsound
from oneshot_fl.parts.objective import Objective
from oneshot_fl.parts.view import Votes, ask, taught
from oneshot_fl.recipe import made_of_ours
from oneshot_fl.seeds import torch_generator

RATE_KEYS = {"student": "distill.student_optimizer.lr", "warm_up": "method.warm_up.optimizer.lr"}
RATE_OF_SOURCES = "distill.generator_optimizer.lr"
"""The keys of learning rates, by what they train, unless a method has its own."""


def require_finite(
    row: Mapping[str, Any], *, student: Iterable[str], rates: Mapping[str, float], rate_keys: Mapping[str, str]
) -> None:
    """Nothing where all is finite; what is not is told at once, and neither trained on nor stored.

    Args:
        row: a round's, with the loss terms of whoever has some by their names.
        student: what of the student itself is not finite.
        rates: learning rates, by what they train.
        rate_keys: of those, where they are not `RATE_OF_SOURCES`.

    Raises:
        OneshotError: a loss term or something of the student is not finite.
    """
    bad = not_finite(row, student)
    if not bad:
        return
    told = ", ".join(f"{who} {rate}" for who, rate in rates.items())
    trained = dict.fromkeys(("student", *rates))  # the likeliest first
    keys = dict.fromkeys(rate_keys.get(who, RATE_OF_SOURCES) for who in trained)
    raise OneshotError(
        f"server: diverged in round {row['round']} (not finite: {', '.join(bad)}); lower a learning rate of the "
        f"server ({told}): {' or '.join(keys)}"
    )


def not_finite(row: Mapping[str, Any], student: Iterable[str]) -> list[str]:
    """The names of all that is not finite in a round's row and, as told, of the student."""
    terms = ((who, values) for who, values in row.items() if isinstance(values, Mapping))
    return [*(f"{who} {name}" for who, each in terms for name in _bad(each)), *student]


def rates_of(optimizers: Mapping[str, Any]) -> dict[str, float]:
    """The learning rate that each optimiser began with, as its key sets it, by what it trains."""
    groups = {who: each.param_groups[0] for who, each in optimizers.items()}
    return {who: group.get("initial_lr", group["lr"]) for who, group in groups.items()}


def require_finite_parts(module: Any, first: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Where a part of a user's own is to blame, and no learning rate; asked once something is not finite.

    Args:
        module: the `DistillModule`.
        first: the values of the very first step's terms by their names, of everybody who has some; later none.

    Raises:
        OneshotError: a loss term alone is not finite from the beginning, or the ensemble answers so to finite votes.
    """
    for who, terms in first.items():
        _require_finite_terms(module.objectives[who], terms)
    if len(module.bank.models) and not made_of_ours(module.ensemble):
        _require_finite_answers(module.ensemble, _votes_on_noise(module))


def _require_finite_terms(objective: Objective, terms: Mapping[str, Tensor]) -> None:
    bad = _bad(terms)
    if len(bad) == 1 < len(terms) and not made_of_ours(objective.terms[bad[0]]):
        raise OneshotError(
            f"{objective.named(bad[0])}: the loss term is {float(terms[bad[0]])} in the first step, where all others "
            "are finite; let it return a finite number, for instance by a clamp_min before a logarithm or a division"
        )


@torch.no_grad()
def _votes_on_noise(module: Any) -> Votes:
    """On finite images: those of the pool may be none by now, as sources learn from the ensemble."""
    spec, count = module.spec, max(2, module.settings.batch_size)
    pixels = torch.rand(count, spec.channels, spec.size, spec.size, generator=torch_generator(0, "diverged"))
    x, y = spec.normalise(pixels).to(module.device), torch.arange(count, device=module.device) % spec.classes
    return ask(module.bank, x, y, module.ensemble.needs)


@torch.no_grad()
def _require_finite_answers(ensemble: Any, votes: Votes) -> None:
    """A logit of -inf excludes its class; numbers of the ensemble's own that are not finite were learnt."""
    if first_unsound(ensemble) or not bool(torch.isfinite(votes.P).all()):
        return
    if not bool(torch.isfinite(taught(ensemble, votes).softmax(dim=1)).all()):
        raise OneshotError(
            "method.ensemble: answers with logits that are not finite, and what the clients say is; let it answer with "
            "finite ones, for instance by a clamp_min before a logarithm or a division"
        )


def _bad(terms: Mapping[str, Any]) -> list[str]:
    return [name for name, value in terms.items() if not math.isfinite(value)]
