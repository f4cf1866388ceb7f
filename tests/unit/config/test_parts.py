"""A class that cannot take its slot is told before training."""

from pathlib import Path

import pytest

from oneshot_fl.config.checks import check
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config

OWN = """
from torch import nn

from oneshot_fl.parts.ensembles import Fixed


class Page:
    needs = frozenset()

    def __init__(self, server): ...

    def make(self, turn): ...


class Bare(nn.Module):
    def __init__(self, server):
        super().__init__()

    def begin(self, rng): ...

    def make(self, turn): ...


class Whole(Bare):
    optimizer = None

    def __init__(self, server):
        super().__init__(server)
        self.reset = False


class NoMake(nn.Module):
    optimizer, reset = None, False

    def __init__(self, server):
        super().__init__()

    def begin(self, rng): ...


class Mute(nn.Module):
    def __init__(self, server):
        super().__init__()

    def forward(self, votes): ...


class Silent(Fixed):
    def remember(self, votes): ...


class Spoken(Fixed):
    def forward(self, votes): ...


def made(server):
    return Whole(server)


class Counting(Whole):
    needs = frozenset({"label_count"})


class Looking(Spoken):
    needs = {"classifiers", "feature"}


class Shaken:
    def __init__(self, server): ...

    def __call__(self, x, teacher, rng): ...


class Start:
    needs = ["client_start"]

    def __init__(self, server): ...


class Still(Start):
    needs = frozenset()


class Unasked:
    needs = frozenset()

    def __init__(self, server): ...

    def draw(self, count, rng): ...


class Term:
    def __init__(self, weight): ...


class Module(nn.Module):
    def __init__(self, weight): ...


class Learnt(Module):
    def forward(self, view): ...


class Said(Term):
    def __call__(self, view): ...


class Heard(Said): ...


class Misspelt(Term):
    needs = frozenset({"statistic"})


class Letters(Term):
    needs = "teacher"


class OfTheServer(Term):
    needs = frozenset({"label_counts"})
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of somebody's own."""
    (tmp_path / "own_parts_of_slots.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_parts_of_slots"


def _source(target: str) -> list[str]:
    return ["method=feddf", f"method.source._target_={target}"]


def _term(group: str, name: str) -> list[str]:
    return ["method=feddf", f"+{group}.mine={{_target_: own_parts_of_slots.{name}, weight: 0.5}}"]


def _ensemble(target: str) -> list[str]:
    return ["method=feddf", f"method.ensemble._target_={target}", "method.ensemble.name=own"]


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("Page", "is no nn.Module and has no method begin and has no optimizer and has no reset"),
        ("Bare", "has no optimizer and has no reset"),
        ("NoMake", "has no method make"),
    ],
)
def test_a_source_that_lacks_something_is_told(own, name, lacks):
    line = rf"^method\.source\._target_={own}\.{name}: {lacks}; a source is an nn\.Module with .* make\(turn\)$"
    with pytest.raises(OneshotError, match=line):
        check(compose_config(*_source(f"{own}.{name}")))


@pytest.mark.parametrize("name", ["Whole", "made"])
def test_values_may_be_set_when_a_source_is_made(own, name):
    check(compose_config(*_source(f"{own}.{name}")))


def test_of_several_sources_the_one_that_lacks_something_is_named(own):
    with pytest.raises(OneshotError, match=r"^method\.source\.mine\._target_=.*\.Bare: has no optimizer"):
        check(compose_config("method=fedchorus", f"+method.source.mine={{_target_: {own}.Bare}}"))


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("Mute", "has no method remember and has no method recall and has no method refit and has no needs"),
        ("Silent", "has no method forward"),
    ],
)
def test_an_ensemble_that_lacks_something_is_told(own, name, lacks):
    with pytest.raises(OneshotError, match=rf"^method\.ensemble\._target_={own}\.{name}: {lacks}; an ensemble is"):
        check(compose_config(*_ensemble(f"{own}.{name}")))


def test_a_perturbation_that_draws_by_itself_is_told(own):
    line = rf"^method\.perturb\._target_={own}\.Shaken: has no method draw; a perturbation has draw\(count, rng\)"
    with pytest.raises(OneshotError, match=line):
        check(compose_config("method=feddf", f"+method.perturb={{_target_: {own}.Shaken}}"))


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ["method=feddf", "method.init._target_=own_parts_of_slots.Still"],
            "Still: has no method __call__; an init is",
        ),
        (
            ["method=feddf", "+method.perturb={_target_: own_parts_of_slots.Unasked}"],
            "Unasked: has no method __call__; a perturbation has draw",
        ),
        (_term("method.student", "Term"), "Term: has no method __call__; a loss term is called with a view"),
        (_term("method.objective", "Term"), "Term: has no method __call__; a loss term is"),
        (_term("recite.objective", "Module"), "Module: has no method forward; a loss term is"),
    ],
)
def test_what_is_called_but_cannot_be_is_told(own, overrides, line):
    with pytest.raises(OneshotError, match=rf"^[a-z.]+\._target_={own}\.{line}"):
        check(compose_config(*overrides))


@pytest.mark.parametrize("name", ["Said", "Heard", "Learnt"])
def test_a_term_that_can_be_called_passes(own, name):
    check(compose_config(*_term("method.student", name)))


def test_of_an_ensemble_that_never_changes_forward_is_enough(own):
    check(compose_config(*_ensemble(f"{own}.Spoken")))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            _term("method.student", "Misspelt"),
            "Misspelt: it needs statistic, .* did you mean statistics.*; a loss term",
        ),
        (_term("method.objective", "Misspelt"), "Misspelt: it needs statistic, "),
        (_term("recite.objective", "Misspelt"), "Misspelt: it needs statistic, "),
        (_term("method.student", "OfTheServer"), "OfTheServer: it needs label_counts, .* may need features, start, "),
        (_term("method.student", "Letters"), 'Letters: its needs are teacher, .* frozenset\\(\\{"features"\\}\\)'),
        (_source("own_parts_of_slots.Counting"), "Counting: it needs label_count, .* did you mean label_counts"),
        (_ensemble("own_parts_of_slots.Looking"), "Looking: it needs feature, .* did you mean features.*; an ensemble"),
        (["method=feddf", "method.init._target_=own_parts_of_slots.Start"], "Start: its needs are "),
        (
            ["+evaluate.ensembles.mine={name: mine, _target_: own_parts_of_slots.Looking}"],
            "Looking: it needs feature, ",
        ),
    ],
)
def test_a_need_that_there_is_not_is_told_with_the_one_that_was_meant(own, overrides, says):
    with pytest.raises(OneshotError, match=rf"^[a-z.]+\._target_={own}\.{says}"):
        check(compose_config(*overrides))
