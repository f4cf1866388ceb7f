"""A single run of a sweep's configuration says what it leaves out."""

import pytest

from oneshot_fl.config.compose import reading_also, with_hydras
from oneshot_fl.config.single import left_out

DIGITS = "experiment=digits_dirichlet"


def _line(*overrides: str) -> str | None:
    return left_out(with_hydras(*overrides).hydra)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([DIGITS], "is a sweep of 40 jobs over method, seed, and this is a single run; add -m"),
        ([DIGITS, "method=fedavg"], "is a sweep of 5 jobs over seed, and this is a single run; add -m"),
        ([DIGITS, "seed=7", "partition.alpha=1"], "is a sweep of 8 jobs over method, and this is a single run; add -m"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_jobs_that_are_left_out_are_counted(overrides, says):
    assert _line(*overrides) == f"{DIGITS} {says}"


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ("{seed: 1}", "is a sweep of 1 job over seed"),
        ("{budget: glob(*), seed: 1}", "is a sweep over budget, seed"),
        ("{seed: 'range(0, 3)'}", "is a sweep of 3 jobs over seed"),
    ],
)
def test_a_sweep_of_ones_own_is_told_too_and_counted_where_it_can_be(tmp_path, params, says):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "default.yaml").write_text(f"# @package _global_\nhydra: {{sweeper: {{params: {params}}}}}\n")
    with reading_also(tmp_path):
        assert _line() == f"hydra.sweeper.params {says}, and this is a single run; add -m"


@pytest.mark.parametrize("overrides", [[], ["seed=3"], [DIGITS, "method=fedavg", "seed=0"]], ids=" ".join)
def test_nothing_is_said_where_nothing_is_left_out(overrides):
    assert _line(*overrides) is None
