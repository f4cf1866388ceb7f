"""The benchmarks measure what they say; what comes out is never tested, because machines are shared."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import literal
from benchmarks.__main__ import markdown
from benchmarks.measure import Arithmetic, in_turn
from benchmarks.runs import configuration, literally, ours
from benchmarks.scale import GREY
from benchmarks.steps import LocalTraining, Steps
from oneshot_fl.models.generators import ConvGenerator

TINY = replace(GREY, size=8, clients=2, samples=40, epochs=1, rounds=2, generator_steps=1, batch=16, noise=4, width=4)
PARTS = ["clients", "stratification", "generator", "pool", "whole"]


@pytest.mark.parametrize("method", ["fedhydra", "co_boosting"])
def test_both_versions_run_and_tell_the_seconds_of_the_same_parts(method):
    measured = ours(configuration(method, TINY, "trainer=cpu"), TINY), literally(method, TINY)
    for seconds in measured:
        assert list(seconds) == PARTS
        assert sum(seconds[part] for part in PARTS[:-1]) <= seconds["whole"]
        assert min(seconds[part] for part in ("clients", "generator", "pool")) > 0


def test_the_literal_generator_is_ours(spec):
    ours, theirs = ConvGenerator(spec, noise=4, width=2), literal.make_generator(spec, noise=4, width=2)
    with torch.no_grad():
        for parameter, given in zip(theirs.parameters(), ours.parameters(), strict=True):
            parameter.copy_(given)
    z = torch.randn(6, 4)
    torch.testing.assert_close(spec.to_pixels(ours(z)), theirs[:-1](z))


def test_arithmetic_is_kept_and_runs_again():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    with Arithmetic() as arithmetic:
        F.cross_entropy(model(torch.randn(5, 1, 4, 4)), torch.zeros(5, dtype=torch.long)).backward()
    names = [func.name().split("::")[1] for func, _, _ in arithmetic.calls]
    assert names == ["convolution", "addmm", "mm", "mm", "convolution_backward"]
    arithmetic.again()


def test_medians_leave_the_first_measurement_out():
    seconds = iter([9.0, 3.0, 1.0, 2.0])
    assert in_turn({"it": lambda: {"whole": next(seconds)}}, repeats=3) == {"it": {"whole": 2.0}}


def test_every_step_runs():
    steps = Steps(TINY, precision="bf16-mixed", at_once=1)
    for step in (steps.training(), steps.generation(), steps.stratification(at_once=2)):
        step()
    training = LocalTraining(TINY)
    training.by_trainer()
    training.by_hand()


def test_rows_become_a_table():
    assert markdown([{"a | b": 0.12345, "c": 2}]) == "| a / b | c |\n| --- | --- |\n| 0.123 | 2 |"
