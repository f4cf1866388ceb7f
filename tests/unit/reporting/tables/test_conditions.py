"""What captions say of how runs were done, beside data, partition, models and budget."""

import pytest

from oneshot_fl.reporting.tables.conditions import conditions
from oneshot_fl.reporting.tables.own import describe


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, []),
        ({"development": True}, ["tested on development images"]),
        ({"development": False, "communication_rounds": 1, "attack": None, "gate": None, "hearing": None}, []),
        ({"communication_rounds": 5}, ["5 communication rounds"]),
        ({"clients": {"epsilon": 8.0, "delta": 0.001}}, ["private clients, epsilon 8"]),
        ({"clients": {"sam": 0.05}}, ["sharpness-aware clients, radius 0.05"]),
        ({"clients": {"sam": None}, "attack": {}}, []),
        (
            {"attack": {"name": "scale", "factor": 10.0}, "gate": {"name": "checks"}, "hearing": {"name": "witnesses"}},
            ["attack scale", "gate checks", "hearing witnesses"],
        ),
        ({"attack": {"_target_": "lab.Own"}}, ["attack Own"]),
    ],
)
def test_what_is_not_as_it_ordinarily_is_stands_in_the_caption(make_run, settings, told):
    run = make_run(settings=settings)
    assert conditions(run) == told
    assert all(words in describe(run) for words in told)
