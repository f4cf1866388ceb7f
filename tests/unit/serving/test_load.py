import hashlib
import json
import os
import re
from dataclasses import asdict, replace

import pytest
import torch
import yaml
from safetensors.torch import save_file

from oneshot_fl.config.compose import plain
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2, lenet5
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import write_model
from oneshot_fl.models.per_architecture import together
from oneshot_fl.serving.load import load
from oneshot_fl.serving.model import Source
from tests.composing import compose_config
from tests.parts import SMALL

NAMES = ("a", "b", "c")


def _write(path, model, *architectures, **told):
    write_model(path, model.state_dict(), ModelDescription("classifier", architectures, SMALL, NAMES, **told))
    return path


def test_what_a_file_says_of_itself_is_enough(tmp_path):
    own = cnn2(SMALL, norm=True).eval()
    path = _write(tmp_path / "server.safetensors", own, {"name": "cnn2"}, temperature=1.5)
    x = torch.rand(4, 1, 8, 8)
    for place in (path, tmp_path):
        model = load(place)
        assert torch.equal(model(x), own(x))
        assert (model.spec, model.class_names, model.temperature, model.training) == (SMALL, NAMES, 1.5, False)


def test_a_model_may_be_named_by_a_link(tmp_path):
    own = cnn2(SMALL, norm=True).eval()
    path = _write(tmp_path / "elsewhere" / "model.safetensors", own, {"name": "cnn2"})
    (tmp_path / "server.safetensors").symlink_to(path)
    (tmp_path / "best").symlink_to(tmp_path)
    x = torch.rand(4, 1, 8, 8)
    for place in (tmp_path / "server.safetensors", tmp_path, tmp_path / "best"):
        assert torch.equal(load(place)(x), own(x))


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("failed", "failed"),
        ("interrupted", "was interrupted"),
        ("running", "is under way"),
        ("done", ""),
    ],
)
def test_the_model_of_a_run_before_one_that_came_to_none_is_told_as_such(tmp_path, capsys, status, told):
    _write(tmp_path / "server.safetensors", cnn2(SMALL, norm=True), {"name": "cnn2"})
    (tmp_path / "run.json").write_text(json.dumps({"status": status}))
    load(tmp_path)
    line = f"oneshot_fl: {tmp_path}: the last run there {told}; this is the model of an earlier one\n"
    assert capsys.readouterr().err == (line if told else "")


def test_images_are_read_as_the_file_says(tmp_path):
    path = _write(tmp_path / "a.safetensors", cnn2(SMALL, norm=True), {"name": "cnn2"}, tones=Tones(4095.0, 0))
    assert load(path).tones == Tones(4095.0, 0)


def test_a_model_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    path = _write(tmp_path / "a.safetensors", cnn2(SMALL, norm=True), {"name": "cnn2"})
    monkeypatch.setattr("oneshot_fl.config.tried.memory_here", lambda: 1000)
    with pytest.raises(OneshotError, match=r"a\.safetensors: its model needs .* for 2 images of 1x8x8"):
        load(path)


def test_models_that_vote_are_one(tmp_path):
    own = together([cnn2(SMALL, norm=True), lenet5(SMALL)]).eval()
    model = load(_write(tmp_path / "a.safetensors", own, {"name": "cnn2"}, {"name": "lenet5"}))
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(model(x), own(x))
    assert model.temperature == 1.0


class Flat(torch.nn.Linear):
    """Grey images of 8x8 pixels -> three logits."""

    def __init__(self) -> None:
        super().__init__(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(1))


FLAT = f"{__name__}.Flat"


def test_code_that_is_not_ours_has_to_be_allowed(tmp_path):
    own = Flat()
    path = _write(tmp_path / "a.safetensors", own, {"_target_": FLAT})
    with pytest.raises(OneshotError, match=re.escape(FLAT)):
        load(path)
    assert torch.equal(load(path, allow=[FLAT]).model.weight, own.weight)


@pytest.mark.parametrize(
    ("spec", "names", "says"),
    [
        (replace(SMALL, classes=2), ("a", "b"), "its model answers two images with (2, 3), not (2, 2)"),
        (replace(SMALL, classes=4), ("a", "b", "c", "d"), "its model answers two images with (2, 3), not (2, 4)"),
        (DataSpec(3, 8, 3, (0.5,) * 3, (0.5,) * 3), NAMES, "its model does not run on 3x8x8 images (RuntimeError: "),
    ],
    ids=["a class too few", "a class too many", "other channels"],
)
def test_a_model_that_does_not_answer_as_its_file_says_is_one_line(tmp_path, spec, names, says):
    path = tmp_path / "a.safetensors"
    write_model(path, Flat().state_dict(), ModelDescription("classifier", ({"_target_": FLAT},), spec, names))
    with pytest.raises(OneshotError) as error:
        load(path, allow=[FLAT])
    assert str(error.value).startswith(f"{path}: {says}")
    assert "\n" not in str(error.value)


class Scattered(Flat):
    """Multiplies its pixels by numbers that no file holds."""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.randn(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(1) * self.own)


def test_a_model_that_is_another_wherever_it_is_built_is_one_line(tmp_path):
    path, target = tmp_path / "a.safetensors", f"{__name__}.Scattered"
    _write(path, Scattered(), {"_target_": target})
    with pytest.raises(OneshotError, match="computes with numbers that are drawn when it is built") as error:
        load(path, allow=[target])
    assert str(error.value).startswith(f"{path}: ")


class Squeezed(Flat):
    """A single image's logits lose the axis of the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).squeeze()


class NeedsTwo(Flat):
    """Two images at least."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x[1].sum()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Squeezed, "its model answers one image with (3,), not (1, 3)"),
        (NeedsTwo, "its model does not run on 1x8x8 images, one at a time (IndexError: "),
    ],
)
def test_a_model_that_cannot_be_asked_about_a_single_image_is_one_line(tmp_path, model, says):
    path, target = tmp_path / "a.safetensors", f"{__name__}.{model.__name__}"
    _write(path, model(), {"_target_": target})
    with pytest.raises(OneshotError) as error:
        load(path, allow=[target])
    assert str(error.value).startswith(f"{path}: {says}")


def test_the_file_is_named_with_its_digest(tmp_path):
    path = _write(tmp_path / "a.safetensors", cnn2(SMALL, norm=True), {"name": "cnn2"})
    assert load(path).source == Source("a.safetensors", hashlib.sha256(path.read_bytes()).hexdigest())


def test_so_is_that_of_a_run_by_an_earlier_version(tmp_path):
    images = {"data_spec": {**asdict(SMALL), "class_names": NAMES}}
    (tmp_path / "summary.json").write_text(json.dumps(images))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(plain(compose_config()), sort_keys=False))
    path = tmp_path / "server.safetensors"
    save_file(cnn2(SMALL, norm=True).state_dict(), path)
    assert load(tmp_path).source == Source(path.name, hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_file_that_says_nothing_is_one_line(tmp_path):
    save_file(cnn2(SMALL, norm=True).state_dict(), tmp_path / "server.safetensors")
    with pytest.raises(OneshotError, match="holds no finished run"):
        load(tmp_path)
    with pytest.raises(OneshotError, match="says nothing of its model"):
        load(tmp_path / "server.safetensors")
    with pytest.raises(OneshotError, match="nowhere"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["server.safetensors", "summary.json", "config.yaml", "run.json"])
def test_a_pipe_in_a_runs_folder_is_told_and_not_waited_for(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(OneshotError, match=rf"^{tmp_path}/{name}: is no regular file$"):
        load(tmp_path)
