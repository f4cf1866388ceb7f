import pytest

from oneshot_fl.reporting.tables.own import comparable
from oneshot_fl.reporting.tables.setting_titles import titles_beside


@pytest.fixture
def titles(make_run):
    """A function from what differs to the titles of runs' settings."""
    return lambda *changes: titles_beside(comparable([make_run(**change) for change in changes]))


def _settings(**groups):
    return {"settings": groups}


def test_a_setting_alone_has_nothing_to_tell(titles):
    told = titles({})
    assert told.each == [""]
    assert told.shared == (
        "mnist, dirichlet, alpha=0.1, 5 clients, cnn2, budget paper, 200 local epochs, 200 rounds of 30 generator steps"
    )


@pytest.mark.parametrize(
    ("changes", "each"),
    [
        ([{"data": "digits"}, {"data": "mnist"}], ["digits", "mnist"]),
        ([{}, _settings(partition={"alpha": 0.5})], ["alpha=0.1", "alpha=0.5"]),
        (
            [{}, _settings(partition={"name": "classes_per_client", "classes": 2, "alpha": None})],
            ["dirichlet, alpha=0.1", "classes_per_client, classes=2"],
        ),
        ([{}, _settings(proxy={"name": "holdout", "fraction": 0.2})], ["without", "20% held out"]),
        ([{}, {"models": {"clients": ["cnn2"] * 5, "server": "vgg9"}}], ["without", "server vgg9"]),
        ([{}, {"models": {"clients": ["lenet5"] * 5, "server": "lenet5"}}], ["cnn2", "lenet5"]),
        (
            [{}, {"models": {"clients": ["cnn2"] * 2, "server": "cnn2"}, **_settings(partition={"clients": 2})}],
            ["5 clients", "2 clients"],
        ),
        ([{}, _settings(clients={"epochs": 9})], ["clients.epochs=200", "clients.epochs=9"]),
        (
            [
                _settings(partition={"name": "lognormal", "sigma": sigma, "alpha": alpha})
                for sigma, alpha in ((0.1, 0.1), (0.2, 0.5))
            ],
            ["sigma=0.1, partition.alpha=0.1", "sigma=0.2, partition.alpha=0.5"],
        ),
    ],
)
def test_only_what_differs_is_told(titles, changes, each):
    told = titles(*changes)
    assert told.each == each
    assert told.untold == []


def test_what_differs_is_left_out_of_what_is_shared(titles):
    told = titles({}, {"data": "digits", **_settings(clients={"epochs": 9})})
    assert told.shared == "dirichlet, alpha=0.1, 5 clients, cnn2, budget paper, 200 rounds of 30 generator steps"


def test_a_setting_that_is_not_crossed_with_the_others_is_told_everywhere(titles):
    told = titles({}, _settings(partition={"alpha": 0.5}, clients={"epochs": 9}), _settings(clients={"epochs": 9}))
    assert told.each == [
        "alpha=0.1, clients.epochs=200",
        "alpha=0.5, clients.epochs=9",
        "alpha=0.1, clients.epochs=9",
    ]


def test_what_follows_from_the_budget_is_named_beside_the_titles(titles):
    other = _settings(clients={"epochs": 9}, distill={"rounds": 8})
    told = titles({}, {"budget": "demo", **other})
    assert told.each == ["budget paper", "budget demo"]
    assert told.untold == ["clients.epochs", "distill.rounds"]


def test_an_attack_is_told_by_its_name(titles):
    noise = {"name": "noise", "_target_": "lab.Noise", "deviation": 1.0}
    flip = {"name": "flip", "_target_": "lab.Flip", "fraction": 0.5}
    told = titles({}, _settings(attack=noise), _settings(attack=flip))
    assert told.each == ["without", "attack noise", "attack flip"]
    assert titles(_settings(attack=noise), _settings(attack=flip)).each == ["attack noise", "attack flip"]
    assert "attack noise" in titles(_settings(attack=noise), _settings(attack=noise, data={"name": "svhn"})).shared


def test_two_strengths_of_an_attack_are_told_apart(titles):
    strengths = [_settings(attack={"name": "noise", "deviation": deviation}) for deviation in (1.0, 2.0)]
    assert titles(*strengths).each == ["attack.deviation=1.0", "attack.deviation=2.0"]
    assert len(set(titles({}, *strengths).each)) == 3


def test_settings_that_would_be_called_alike_say_in_what_they_differ(titles):
    """Other data of one name: nothing that a title tells, and not crossed with alpha."""
    east, west = ({"root": root} for root in ("east", "west"))
    told = titles(_settings(data=east), _settings(data=west), {"data": "digits"})
    assert [title.partition("; ")[::2] for title in told.each] == [
        ("mnist", "data.root=east"),
        ("mnist", "data.root=west"),
        ("digits", ""),
    ]
