"""What is told of a server's model that diverged."""

import math

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.phases.diverged import RATE_KEYS, require_finite

ROW = {"round": 3, "accuracy": None, "generator": {"ce": 1.0}, "student": {"kl": 2.0}}
RATES = {"source images": 0.01, "student": 0.05}


def test_where_all_is_finite_nothing_is_told():
    require_finite(ROW, student=[], rates=RATES, rate_keys=RATE_KEYS)


@pytest.mark.parametrize(
    ("terms", "student", "bad"),
    [
        ({"generator": {"ce": math.inf}}, [], "generator ce"),
        ({"student": {"kl": math.nan}}, ["student's answers"], "student kl, student's answers"),
        ({}, ["student's weight"], "student's weight"),
    ],
)
def test_what_is_not_finite_is_told_with_the_rates_and_their_keys_the_students_first(terms, student, bad):
    with pytest.raises(OneshotError) as caught:
        require_finite({**ROW, **terms}, student=student, rates=RATES, rate_keys=RATE_KEYS)
    assert str(caught.value) == (
        f"server: diverged in round 3 (not finite: {bad}); lower a learning rate of the server (source images 0.01, "
        "student 0.05): distill.student_optimizer.lr or distill.generator_optimizer.lr"
    )


def test_a_methods_own_key_is_named():
    own = {**RATE_KEYS, "student": "method.student_optimizer.lr"}
    with pytest.raises(OneshotError, match=r": method\.student_optimizer\.lr or distill\.generator_optimizer\.lr$"):
        require_finite(ROW, student=["student's answers"], rates=RATES, rate_keys=own)
