"""What is exported answers as the model does, for any batch, with normalisation and temperature inside."""

import pytest
import torch

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import write_model
from oneshot_fl.serving import export as module
from oneshot_fl.serving.export import export
from oneshot_fl.serving.load import load

SPEC = DataSpec(1, 8, 3, (0.4,), (0.2,))


@pytest.fixture
def saved(tmp_path):
    model = cnn2(SPEC, norm=True)
    description = ModelDescription("classifier", ({"name": "cnn2"},), SPEC, ("a", "b", "c"), temperature=2.0)
    write_model(tmp_path / "server.safetensors", model.state_dict(), description)
    return tmp_path


def _expected(folder, pixels):
    served = load(folder)
    with torch.no_grad():
        return served(SPEC.normalise(pixels)) / 2.0


def test_a_torch_program_takes_pixels_in_any_number(saved):
    program, card = export(saved, None, ["torch"])
    pixels = torch.rand(7, 1, 8, 8)
    logits, probabilities = torch.export.load(program).module()(pixels)
    assert torch.allclose(logits, _expected(saved, pixels), atol=1e-5)
    assert torch.allclose(probabilities, logits.softmax(1))
    assert (program.parent, program.name) == (saved / "export", "model.pt2")
    assert "0. a\n1. b\n2. c" in card.read_text()
    assert "grey, 8x8 pixels" in card.read_text()


def test_onnx_runtime_answers_as_the_model_does(saved, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    path, _ = export(saved, tmp_path / "elsewhere", ["onnx"])
    pixels = torch.rand(3, 1, 8, 8)
    logits, probabilities = onnxruntime.InferenceSession(path).run(None, {"pixels": pixels.numpy()})
    assert torch.allclose(torch.from_numpy(logits), _expected(saved, pixels), atol=1e-4)
    assert probabilities.sum(axis=1).tolist() == pytest.approx([1, 1, 1])


def test_what_answers_otherwise_is_refused(saved, monkeypatch):
    monkeypatch.setattr(module, "TOLERANCE", -1.0)
    with pytest.raises(OneshotError, match=r"torch\.export answers otherwise than the model"):
        export(saved, None, ["torch"])


def test_a_format_has_to_be_named(saved):
    with pytest.raises(OneshotError, match="--onnx or --torch-export"):
        export(saved, None, [])
