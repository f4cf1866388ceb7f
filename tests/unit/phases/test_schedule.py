import math
from types import SimpleNamespace

import pytest
import torch

from oneshot_fl.phases.schedule import LOWEST, anneal, factor


@pytest.mark.parametrize(
    ("schedule", "done", "within", "expected"),
    [
        ("constant", 3, 0.5, 1.0),
        ("cosine", 0, 0.0, 1.0),
        ("cosine", 5, 0.0, 0.5),
        ("cosine", 5, 0.9, 0.5),  # one step a round
        ("cosine", 10, 0.0, 0.0),
        ("steps", 4, 0.9, 1.0),
        ("steps", 5, 0.0, 0.1),
        ("steps", 7, 0.9, 0.1),
        ("steps", 8, 0.0, 0.01),
        ("one_cycle", 0, 0.0, LOWEST),
        ("one_cycle", 1, 0.5, 0.5 + LOWEST / 2),  # half of the rise, which takes three rounds of ten
        ("one_cycle", 3, 0.0, 1.0),
        ("one_cycle", 6, 0.5, 0.5),  # half of the fall
        ("one_cycle", 10, 0.0, 0.0),
    ],
)
def test_the_learning_rate_moves_as_the_schedule_says(schedule, done, within, expected):
    assert math.isclose(factor(schedule, rounds_done=done, within=within, rounds=10), expected, abs_tol=1e-12)


def test_a_rate_is_always_a_share_of_the_one_that_the_optimiser_began_with():
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.2}, {"lr": 0.01, "initial_lr": 0.4}])
    for _ in range(2):
        anneal(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]


def test_an_annealed_optimiser_differs_in_its_rates_alone():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5, momentum=0.9)
    anneal(optimizer, 0.25)
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]) == (0.125, 0.9)
