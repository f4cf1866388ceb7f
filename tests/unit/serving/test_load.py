import pytest
import torch
from safetensors.torch import save_file

from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2, lenet5
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import write_model
from oneshot_fl.models.per_architecture import together
from oneshot_fl.serving.load import load
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


def test_images_are_read_as_the_file_says(tmp_path):
    path = _write(tmp_path / "a.safetensors", cnn2(SMALL, norm=True), {"name": "cnn2"}, tones=Tones(4095.0, 0))
    assert load(path).tones == Tones(4095.0, 0)


def test_models_that_vote_are_one(tmp_path):
    own = together([cnn2(SMALL, norm=True), lenet5(SMALL)]).eval()
    model = load(_write(tmp_path / "a.safetensors", own, {"name": "cnn2"}, {"name": "lenet5"}))
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(model(x), own(x))
    assert model.temperature == 1.0


def test_code_that_is_not_ours_has_to_be_allowed(tmp_path):
    own = torch.nn.Linear(2, 3)
    told = {"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 3}
    path = _write(tmp_path / "a.safetensors", own, told)
    with pytest.raises(OneshotError, match=r"torch\.nn\.Linear"):
        load(path)
    assert torch.equal(load(path, allowed=["torch.nn.Linear"]).model.weight, own.weight)


def test_a_file_that_says_nothing_is_one_line(tmp_path):
    save_file(cnn2(SMALL, norm=True).state_dict(), tmp_path / "server.safetensors")
    with pytest.raises(OneshotError, match="holds no finished run"):
        load(tmp_path)
    with pytest.raises(OneshotError, match="says nothing of its model"):
        load(tmp_path / "server.safetensors")
    with pytest.raises(OneshotError, match="nowhere"):
        load(tmp_path / "nowhere")
