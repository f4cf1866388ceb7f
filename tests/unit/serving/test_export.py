"""What is exported answers as the model does, for any batch, with normalisation and temperature inside."""

import hashlib
import html
import logging
import os

import pytest
import torch

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import write_model
from oneshot_fl.serving import export as module
from oneshot_fl.serving.card import model_card
from oneshot_fl.serving.export import _gap, export
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
    assert logits.numpy().shape == probabilities.numpy().shape == (7, 3)
    assert "0. a\n1. b\n2. c" in card.read_text()
    assert "grey, 8x8 pixels" in card.read_text()


def test_onnx_runtime_answers_as_the_model_does(saved, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    path, _ = export(saved, tmp_path / "elsewhere", ["onnx"])
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    pixels = torch.rand(3, 1, 8, 8)
    logits, probabilities = onnxruntime.InferenceSession(path).run(None, {"pixels": pixels.numpy()})
    assert torch.allclose(torch.from_numpy(logits), _expected(saved, pixels), atol=1e-4)
    assert probabilities.sum(axis=1).tolist() == pytest.approx([1, 1, 1])


def test_what_answers_otherwise_is_refused(saved, monkeypatch):
    monkeypatch.setattr(module, "TOLERANCE", -1.0)
    with pytest.raises(OneshotError, match=r"torch\.export answers otherwise than the model"):
        export(saved, None, ["torch"])
    assert list((saved / "export").iterdir()) == []


def test_where_one_format_is_refused_an_earlier_export_stays_as_it_is(saved, monkeypatch):
    before = {path: path.read_bytes() for path in export(saved, None, ["torch"])}
    monkeypatch.setitem(module.EXPORTERS, "onnx", lambda *_: b"sound")
    monkeypatch.setattr(module, "TOLERANCE", -1.0)
    with pytest.raises(OneshotError, match="answers otherwise"):
        export(saved, None, ["onnx", "torch"])
    assert {path: path.read_bytes() for path in (saved / "export").iterdir()} == before


def test_a_model_is_exported_again_into_the_same_folder(saved):
    first = export(saved, None, ["torch"])
    assert export(saved, None, ["torch"]) == first
    assert sorted((saved / "export").iterdir()) == sorted(first)


def test_a_file_of_an_earlier_export_is_told_of_where_the_card_no_longer_names_it(saved, capsys):
    export(saved, None, ["torch"])
    assert capsys.readouterr().err == ""
    (saved / "export" / "model.onnx").write_bytes(b"another model's")
    export(saved, None, ["torch"])
    told = "model.onnx: is of an earlier export; the card beside it now tells of model.pt2 alone"
    assert told in capsys.readouterr().err
    assert (saved / "export" / "model.onnx").read_bytes() == b"another model's"


def test_a_model_file_without_a_card_of_ours_is_not_overwritten(saved, tmp_path, monkeypatch):
    monkeypatch.setitem(module.EXPORTERS, "torch", lambda *_: pytest.fail("it is looked for before anything is done"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.onnx").write_bytes(b"mine")
    for formats in (["torch"], ["onnx", "torch"]):
        with pytest.raises(OneshotError, match=r"model\.onnx: lies there without a model card of ours .*--out"):
            export(saved, tmp_path / "mine", formats)
    assert (tmp_path / "mine" / "model.onnx").read_bytes() == b"mine"


def test_a_readme_that_is_no_card_is_not_overwritten(saved, monkeypatch):
    monkeypatch.setitem(module.EXPORTERS, "torch", lambda *_: pytest.fail("it is looked for before anything is done"))
    readme, card = saved / "README.md", model_card(load(saved), None, []).encode()
    for content in (b"# My project\n", b"", b"\xff\xfe", b"# Mine\n\nIts card:\n\n" + card):
        readme.write_bytes(content)
        with pytest.raises(OneshotError, match=r"README\.md: is no model card of ours .*--out"):
            export(saved, saved, ["torch"])
        assert readme.read_bytes() == content
    readme.unlink()
    readme.mkdir()
    with pytest.raises(OneshotError, match=r"README\.md: cannot be read .*--out"):
        export(saved, saved, ["torch"])


@pytest.mark.parametrize("summary", ["[]", "{}", "null", '{"server": null}', "{", '{"server": {"accuracy_last": 1}}'])
def test_a_summary_without_figures_of_classes_is_left_out_of_the_card(saved, monkeypatch, summary):
    monkeypatch.setitem(module.EXPORTERS, "torch", lambda *_: b"sound")
    (saved / "summary.json").write_text(summary)
    assert "0. a\n1. b\n2. c" in export(saved, None, ["torch"])[-1].read_text()


@pytest.mark.parametrize("names", [("a.safetensors", "b.safetensors"), ("v1.2", "v1.3"), ("server.safetensors", "a")])
def test_models_of_one_folder_are_exported_beside_each_other(saved, monkeypatch, names):
    monkeypatch.setitem(module.EXPORTERS, "torch", lambda *_: b"sound")
    content = (saved / "server.safetensors").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    for name in names:
        (saved / name).write_bytes(content)
        program, card = export(saved / name, None, ["torch"])
        own = saved / "export" / name.removesuffix(".safetensors")
        assert (program, card) == (own / "model.pt2", own / "README.md")
    for name in names:
        card = saved / "export" / name.removesuffix(".safetensors") / "README.md"
        assert f"| model file | {name} (SHA-256 {sha256}) |" in html.unescape(card.read_text())


OF_UPLOADS = (
    '{"kind": "aggregation", "method": "fedavg", "accepted": ["a", "b"], "versions": {"torch": "2"}, '
    '"server": {"model": "cnn2", "accuracy_last": 0.55}}'
)


def test_the_model_file_of_a_run_is_exported_as_its_folder_is_and_no_other_file_has_its_figures(saved, monkeypatch):
    monkeypatch.setitem(module.EXPORTERS, "torch", lambda *_: b"sound")
    (saved / "summary.json").write_text(OF_UPLOADS)
    of_folder = {path: path.read_text() for path in export(saved, None, ["torch"])}
    of_file = {path: path.read_text() for path in export(saved / "server.safetensors", None, ["torch"])}
    assert of_file == of_folder
    assert "| accuracy on its test set | 55.0% |" in of_file[saved / "export" / "README.md"]
    other = (saved / "server.safetensors").rename(saved / "other.safetensors")
    assert "55.0%" not in export(other, None, ["torch"])[-1].read_text()


class Branching(torch.nn.Linear):
    """A model that does something else where its logits are large."""

    def __init__(self) -> None:
        super().__init__(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = super().forward(x.flatten(1))
        return logits / 2 if logits.max() > 1 else logits


class Counting(torch.nn.Linear):
    """A model that takes the number of its images for a constant."""

    def __init__(self) -> None:
        super().__init__(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.view(len(x), -1))


@pytest.mark.parametrize(("name", "option"), [("torch", "--torch-export"), ("onnx", "--onnx")])
@pytest.mark.parametrize(("made", "why"), [(Branching, "depends on the values"), (Counting, r"x\.shape\[0\]` is none")])
def test_a_model_that_torch_cannot_export_is_one_line(tmp_path, capfd, name, option, made, why):
    if name == "onnx":
        pytest.importorskip("onnxruntime")
    target = f"{__name__}.{made.__name__}"
    description = ModelDescription("classifier", ({"_target_": target},), SPEC, ("a", "b", "c"))
    write_model(tmp_path / "a.safetensors", made().state_dict(), description)
    with pytest.raises(OneshotError, match=rf"^export {option}: this model cannot be exported, .*{why}") as error:
        export(tmp_path / "a.safetensors", None, [name], allow=[target])
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert list((tmp_path / "export" / "a").iterdir()) == []
    assert tuple(capfd.readouterr()) == ("", "")


def test_exporting_leaves_the_callers_logging_as_it_is(saved):
    levels = {name: logging.getLogger(name).level for name in ("torch.onnx", "onnxscript")}
    export(saved, None, ["torch"])
    assert {name: logging.getLogger(name).level for name in levels} == levels
    assert logging.root.manager.disable == 0


def test_a_format_has_to_be_named(saved):
    with pytest.raises(OneshotError, match="--onnx or --torch-export"):
        export(saved, None, [])


@pytest.mark.parametrize(
    ("own", "other", "gap"), [([1000.0, 0.0], [1000.05, 0.0], 5e-5), ([0.5, 0.1], [0.5, 0.1002], 2e-4)]
)
def test_answers_are_held_against_the_largest_of_them_or_one(own, other, gap):
    assert _gap(torch.tensor(own), torch.tensor(other)) == pytest.approx(gap, rel=1e-2)
