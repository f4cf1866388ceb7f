"""Parts that wait: what they need, what they are called, and what a key learns of them."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

import pytest
import torch

from oneshot_fl.errors import OneshotError
from oneshot_fl.recipe import Recipe, described, digest_of, sources_of, targets
from tests.parts import recipe_of


class _Scaled:
    needs: ClassVar[frozenset[str]] = frozenset({"classifiers"})

    def __init__(self, server: str, *, scale: float) -> None:
        self.server, self.scale = server, scale


def test_a_recipe_waits_for_what_only_a_run_knows():
    recipe = recipe_of(_Scaled, scale=2.0)
    first, second = recipe("here"), recipe("there")
    assert (first.server, first.scale, second.server) == ("here", 2.0, "there")
    assert first is not second


def test_needs_are_those_of_the_class_and_a_function_has_none():
    assert recipe_of(_Scaled, scale=1.0).needs == {"classifiers"}
    assert recipe_of(torch.relu).needs == frozenset()


def test_the_name_is_a_label_beside_the_target():
    assert Recipe({"_target_": "x.y", "name": "cnn2"}, dict, dict).name == "cnn2"
    assert recipe_of(dict).name == ""


@dataclass(frozen=True)
class _Inner:
    steps: int
    part: Recipe


@dataclass(frozen=True)
class _Outer:
    inner: _Inner
    rates: tuple[float, ...]
    names: dict[int, str]


def test_every_field_of_settings_is_described():
    outer = _Outer(_Inner(3, recipe_of(_Scaled, scale=2.0)), (0.1, 0.2), {7: "seven"})
    assert described(outer) == {
        "inner": {"steps": 3, "part": {"_target_": f"{__name__}._Scaled", "scale": 2.0}},
        "rates": [0.1, 0.2],
        "names": {"7": "seven"},
    }


def test_parts_with_names_are_described_in_their_order_and_the_settings_of_one_by_name():
    one, two = (recipe_of(_Scaled, scale=scale) for scale in (1.0, 2.0))
    assert described({"b": one, "a": two}) == [["b", described(one)], ["a", described(two)]]
    assert described({}) == {}


@pytest.mark.parametrize("plain", [None, True, 1, 0.5, "text"])
def test_what_is_plain_is_described_as_it_is(plain):
    assert described(plain) is plain


def test_a_class_is_no_settings():
    assert described(_Inner) is _Inner
    assert described(PurePosixPath("a")) == PurePosixPath("a")


def test_targets_are_found_at_any_depth_once_and_in_order():
    settings = {
        "b": {"_target_": "pkg.b", "inner": [{"_target_": "pkg.c"}, {"deep": {"_target_": "pkg.a"}}]},
        "again": {"_target_": "pkg.c", "_partial_": True},
        "text": "_target_",
        "odd": {"_target_": 3},
    }
    assert targets(settings) == ["pkg.b", "pkg.c", "pkg.a"]
    assert targets("pkg.b") == []


def test_what_a_function_of_hydras_fetches_is_a_target_too():
    fetched = {
        "fn": {"_target_": "hydra.utils.get_method", "path": "pkg.f"},
        "path": {"_target_": "pkg.g", "path": "h"},
    }
    assert targets(fetched) == ["hydra.utils.get_method", "pkg.f", "pkg.g"]


def test_a_digest_follows_the_phase_and_every_target_inside():
    inputs = {"method": {"term": {"_target_": "oneshot_fl.parts.terms.CrossEntropy", "weight": 1.0}}}
    other = {"method": {"term": {"_target_": "oneshot_fl.methods.ot.OptimalTransport"}}}
    first = digest_of("oneshot_fl.seeds", inputs)
    assert first == digest_of("oneshot_fl.seeds", {"elsewhere": [inputs]})  # where it stands does not matter
    assert first == digest_of("oneshot_fl.seeds", {"method": {"term": {**inputs["method"]["term"], "weight": 2.0}}})
    assert len({first, digest_of("oneshot_fl.seeds", other), digest_of("oneshot_fl.values", {})}) == 3
    assert digest_of("oneshot_fl.seeds", other) != digest_of("oneshot_fl.seeds", {})


def _of_own_part(setting, target="tests.unit.test_recipe._Scaled", digest=digest_of):
    return digest("oneshot_fl.seeds", {"model": {"_target_": target, "inner": [{"weights": setting}]}})


def test_a_digest_follows_files_that_a_part_that_is_not_ours_names(tmp_path, monkeypatch):
    weights = tmp_path / "weights.bin"
    plain = _of_own_part(str(weights))  # there is no such file yet
    weights.write_bytes(b"1")
    first = _of_own_part(str(weights))
    assert first == _of_own_part(str(weights))
    assert len(first) == len(plain)
    monkeypatch.setenv("HOME", str(tmp_path))
    weights.write_bytes(b"two")
    assert len({plain, first, _of_own_part(str(weights)), _of_own_part("~/weights.bin")}) == 4
    ours = "oneshot_fl.models.classifiers.cnn2"  # our parts say themselves what they read
    assert _of_own_part(str(weights), ours) == _of_own_part("elsewhere", ours)
    assert _of_own_part(str(weights), digest=sources_of) == _of_own_part("elsewhere", digest=sources_of)


def test_a_file_that_a_part_names_and_nobody_can_read_is_named(tmp_path, monkeypatch):
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"1")
    monkeypatch.setattr("oneshot_fl.recipe._sha256", _no_permission)
    with pytest.raises(OneshotError, match=r"weights\.bin: cannot be read \(Permission denied\)"):
        _of_own_part(str(weights))


def _no_permission(*_):
    raise PermissionError(13, "Permission denied")
