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


def made(server):
    return Whole(server)


class Mute(nn.Module):
    def __init__(self, server):
        super().__init__()

    def forward(self, votes): ...


class Silent(Fixed):
    def remember(self, votes): ...


class Spoken(Fixed):
    def forward(self, votes): ...
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of somebody's own."""
    (tmp_path / "own_parts_of_slots.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_parts_of_slots"


def _source(target: str) -> list[str]:
    return ["method=feddf", f"method.source._target_={target}"]


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


def test_of_an_ensemble_that_never_changes_forward_is_enough(own):
    check(compose_config(*_ensemble(f"{own}.Spoken")))
