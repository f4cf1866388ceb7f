"""A file names code: ours is built, any other only where it was allowed, and nothing larger than the file."""

import sys
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from oneshot_fl.config import described
from oneshot_fl.config.compose import architecture, build, choices, plain
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import read_model, write_model
from oneshot_fl.models.per_architecture import PerArchitecture
from tests.parts import SMALL

CNN2 = {"_target_": "oneshot_fl.models.classifiers.cnn2", "norm": True}
NAMES = ("a", "b", "c")


def _told(*architectures: dict[str, Any], kind: Any = "classifier", spec: DataSpec = SMALL) -> ModelDescription:
    return ModelDescription(kind, architectures, spec, NAMES)


def _single(group: str) -> list[str]:
    """Choices that stand for one architecture and ask for nothing more."""
    texts = {name: path.read_text() for name, path in choices(group).items()}
    found = [name for name, text in texts.items() if "_target_" in text and "???" not in text]
    assert len(found) >= 5
    return found


@pytest.mark.parametrize("name", _single("model"))
def test_every_classifier_of_conf_can_be_in_a_file(name):
    node = plain(architecture(name))
    with torch.device("meta"):
        found = described.build(_told({"name": name}, spec=DataSpec(3, 32, 3, (0.5,) * 3, (0.5,) * 3)))
    assert node["_target_"] in described.CLASSIFIERS
    assert found.state_dict().keys()


@pytest.mark.parametrize("name", _single("cvae"))
def test_of_every_vae_of_conf_a_file_holds_the_decoder(name):
    node = plain(architecture(name, "cvae"))
    found = described.build(_told(node, kind="decoder"))
    assert found.state_dict().keys() == build(node, spec=SMALL).decoder.state_dict().keys()


def test_a_file_is_loaded_with_its_weights(tmp_path):
    model = build(CNN2, spec=SMALL)
    write_model(tmp_path / "a.safetensors", model.state_dict(), _told(CNN2))
    loaded = described.load(read_model(tmp_path / "a.safetensors"))
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(loaded(x), model.eval()(x))
    assert not loaded.training


def test_several_architectures_vote():
    assert isinstance(described.build(_told(CNN2, {"name": "lenet5"})), PerArchitecture)


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a trace when it is imported."""
    trace = tmp_path / "imported"
    (tmp_path / "elsewhere_net.py").write_text(
        f"import pathlib, torch\npathlib.Path({str(trace)!r}).touch()\n"
        "def net(width: int = 4):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.Linear(width, 3))\n"
        "def broken():\n    raise KeyError('no')\n"
        "def number():\n    return 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield trace
    sys.modules.pop("elsewhere_net", None)


def test_foreign_code_is_imported_only_where_exactly_its_name_is_allowed(foreign):
    told = _told({"_target_": "elsewhere_net.net", "width": 5})
    for allow in (
        *((), ("elsewhere_net",), ("elsewhere_net.broken",), ("elsewhere_net.*",)),
        *("", "elsewhere_net", "elsewhere_net.network", "my.elsewhere_net.net"),
    ):
        with pytest.raises(OneshotError, match=r"--allow elsewhere_net\.net"):
            described.build(told, allow=allow)
    assert not foreign.exists()
    for allow in (["elsewhere_net.net"], "elsewhere_net.net"):
        assert described.build(told, allow=allow)[1].out_features == 5
    assert foreign.exists()


@pytest.mark.parametrize("target", ["os.system", "builtins.eval", "torch.load", "oneshot_fl.run", "subprocess.run"])
def test_dangerous_names_are_not_called(target, tmp_path):
    with pytest.raises(OneshotError, match="not allowed here"):
        described.build(_told({"_target_": target, "command": f"touch {tmp_path}/x"}))


@pytest.mark.parametrize(
    ("target", "says"),
    [("elsewhere_net.broken", "cannot be built"), ("elsewhere_net.number", "no torch module")],
)
def test_what_an_allowed_builder_raises_is_one_line(foreign, target, says):
    with pytest.raises(OneshotError, match=says):
        described.build(_told({"_target_": target}), allow=[target])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"norm": "yes"}, "norm='yes': must be true or false"),
        ({"norm": True, "depth": 3}, "depth"),
        ({}, "norm: is missing"),
        ({"norm": True, "spec": 3}, "spec"),
    ],
)
def test_arguments_are_held_against_the_signature(arguments, says):
    with pytest.raises(OneshotError, match=f"client 1: .*{says}"):
        described.build(_told({"_target_": CNN2["_target_"], **arguments}), source="client 1")


@pytest.mark.parametrize("option", [{"weights": "DEFAULT"}, {"width_mult": 1000}, {"num_classes": 7}])
def test_a_file_hands_no_option_of_its_own_to_torchvision(option):
    told = {"_target_": "oneshot_fl.models.zoo.from_torchvision", "architecture": "mobilenet_v2", **option}
    with pytest.raises(OneshotError, match=next(iter(option))):
        described.build(_told(told))


def test_a_builder_of_ours_that_is_allowed_by_name_takes_every_option(tmp_path):
    target = "oneshot_fl.models.zoo.from_torchvision"
    told = _told({"_target_": target, "architecture": "mobilenet_v2", "dropout": 0.1})
    model = described.build(told, allow=[target])
    write_model(tmp_path / "a.safetensors", model.state_dict(), told)
    assert described.load(read_model(tmp_path / "a.safetensors"), allow=[target])(torch.zeros(2, 1, 8, 8)).shape == (
        2,
        3,
    )
    with pytest.raises(OneshotError, match=rf"dropout: .* --allow {target}"):
        described.load(read_model(tmp_path / "a.safetensors"))


def test_an_unknown_name_and_an_unknown_architecture_are_refused():
    for told in ({"name": "no_such"}, {"name": "mixed"}, {"_target_": "oneshot_fl.models.classifiers.no_such"}):
        with pytest.raises(OneshotError, match="the model: "):
            described.build(_told(told))


@pytest.mark.parametrize("kind", ["classifier", "decoder"])
@pytest.mark.parametrize("name", sorted({*choices("model"), *choices("cvae")}))
def test_whatever_choice_of_conf_a_file_names_it_is_known_or_refused(name, kind):
    with suppress(OneshotError):
        assert described.architectures(_told({"name": name}, kind=kind))


def test_nothing_is_allocated_where_the_tensors_are_not_those_of_the_file(tmp_path):
    """Its head alone would take 3 TB."""
    huge = DataSpec(3, 1024, 10_000, (0.5,) * 3, (0.5,) * 3)
    told = replace(_told({"name": "cnn3"}, spec=huge), class_names=tuple(map(str, range(10_000))))
    write_model(tmp_path / "a.safetensors", OrderedDict(x=torch.zeros(1)), told)
    with pytest.raises(OneshotError, match=r"a\.safetensors: tensor \S+ is missing"):
        described.load(read_model(tmp_path / "a.safetensors"))


@pytest.mark.parametrize("change", ["missing", "unexpected", "shape", "dtype", "finite"])
def test_tensors_that_do_not_fit_are_refused(change, tmp_path):
    state = dict(build(CNN2, spec=SMALL).state_dict())
    name = next(iter(state))
    changed = {
        "missing": {key: value for key, value in state.items() if key != name},
        "unexpected": {**state, "more": torch.zeros(1)},
        "shape": {**state, name: state[name][:1]},
        "dtype": {**state, name: state[name].half()},
        "finite": {**state, name: torch.full_like(state[name], torch.nan)},
    }[change]
    write_model(tmp_path / "a.safetensors", changed, _told(CNN2))
    with pytest.raises(OneshotError, match=r"a\.safetensors: tensor "):
        described.load(read_model(tmp_path / "a.safetensors"))


def test_building_draws_nothing_from_the_callers_random_state():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    described.build(_told(CNN2))
    assert torch.equal(torch.rand(1), expected)
