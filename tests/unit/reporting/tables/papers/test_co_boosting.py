import pytest

from oneshot_fl.reporting.tables.papers.co_boosting import SWITCHES, asked
from oneshot_fl.reporting.tables.papers.paper import ABSENT, PRESENT


def test_the_components_of_table_7():
    assert asked("GHS+EE", "svhn") == dict(zip(SWITCHES.values(), (PRESENT, ABSENT, PRESENT), strict=True))
    assert set(asked("no_GHS_no_DHS_no_EE", "svhn").values()) == {ABSENT}


def test_a_strength_is_in_units_of_images_twice_as_wide():
    assert asked("epsilon=8/255", "svhn") == {"method.perturb.epsilon": pytest.approx(4 / 255)}
