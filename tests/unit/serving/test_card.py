import html
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import Decoding, Tones, decode
from oneshot_fl.serving.card import model_card
from oneshot_fl.serving.model import ServedModel, Source
from tests.parts import SMALL, FixedLogits
from tests.unit.data.image_files import DEEP, png_of_16_bit_colour, png_of_low_grey, tiff_of_planes

GREY = Decoding(8, 1)
SUMMARY = {
    "method": "fedhydra",
    "data": "scans",
    "data_sha256": "0123456789abcdef" * 4,
    "models": {"server": "cnn2"},
    "settings": {},
    "partition": {"name": "dirichlet", "sizes": [10, 20]},
    "versions": {"oneshot_fl": "1", "torch": "2"},
    "server": {
        "accuracy_last": 0.5,
        "balanced_accuracy": 0.25,
        "macro_auroc": None,
        "ece": 0.125,
        "calibration": {"temperature": 2.0, "ece": 0.0625},
        "by_class": [
            {"class": "healthy", "images": 8, "recall": 0.75, "auroc": 0.9},
            {"class": "rare", "images": 0, "recall": None, "auroc": None},
        ],
        "abstention": [{"coverage": 0.5, "server": 1.0, "clients": None}],
    },
}
SERVED = ServedModel(FixedLogits([0.0, 1.0, 2.0]), SMALL, ("healthy", "rare", "other"), temperature=2.0)


def test_a_card_tells_every_class_with_its_figures_and_says_where_there_are_none():
    card = model_card(SERVED, SUMMARY, ["model.onnx"])
    assert card.startswith("# fedhydra on scans\n")
    for line in (
        "| images | grey, 8x8 pixels |",
        "| clients | 2, dirichlet, 30 images |",
        "| 0 | healthy | 8 | 75.0% | 0.900 |",
        "| 1 | rare | 0 | – | – |",
        "Accuracy 50.0%, balanced 25.0%, macro AUROC –;",
        "calibration error (ECE) 12.5%, 6.2% with the temperature.",
        "| 50.0% | 100.0% |",
        "## Intended use and limits",
    ):
        assert line in card.splitlines()
    assert "Files: `model.onnx`. Input `pixels`: float32 `[b, 1, 8, 8]` in [0, 1]" in card


def test_figures_of_training_images_are_not_called_the_test_sets():
    assert "## On the test set" in model_card(SERVED, SUMMARY, []).splitlines()
    card = model_card(SERVED, {**SUMMARY, "settings": {"development": True}}, [])
    assert "## On training images held back (`development=true`)" in card.splitlines()
    assert "## On the test set" not in card


def test_private_and_hostile_clients_are_told_of_where_there_are_some():
    private, other = {"epsilon": 7.25, "delta": 0.001}, {"epsilon": None, "delta": None}
    told = {"clients": [{**private, "epsilon": 6.0}, private, other], "attack": {"name": "label_flip", "clients": 1}}
    card = model_card(SERVED, {**SUMMARY, **told}, []).splitlines()
    assert "| attack | label_flip by 1 of 2 clients |" in card
    (line,) = [line for line in card if "differential privacy" in line]
    assert line == "| differential privacy | 2 of 3 clients, epsilon 7.25, delta 0.001, for one image more or less |"
    without = {"clients": [other, other], "attack": None}
    assert model_card(SERVED, {**SUMMARY, **without}, []) == model_card(SERVED, SUMMARY, [])


@pytest.mark.parametrize(("temperature", "says"), [(2.0, "both calibrated"), (1.0, "not calibrated")])
def test_only_what_was_calibrated_is_called_so(temperature, says):
    served = ServedModel(SERVED.model, SMALL, SERVED.class_names, temperature=temperature)
    assert [line for line in model_card(served, None, []).splitlines() if "calibrated" in line] == [
        f"normalised. Outputs `logits` and `probabilities`: `[b, 3]`, {says}."
    ]


def _made(served):
    """What the card's lines make of `image.png` in the current folder."""
    (lines,) = re.findall(r"```python\n(.*?)```", model_card(served, None, []), flags=re.DOTALL)
    made = {}
    exec(lines, made)
    return made


@pytest.mark.parametrize(("channels", "background"), [(1, 128), (3, 255)])
def test_the_lines_about_the_input_make_the_numbers_that_training_images_became(
    tmp_path, monkeypatch, channels, background
):
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(256, size=(13, 29, 4), dtype=np.uint8), "RGBA")
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter to the right
    picture.save(tmp_path / "image.png", exif=turned)
    spec, tones = DataSpec(channels, 8, 3, (0.5,), (0.5,)), Tones(background=background)
    served = ServedModel(SERVED.model, spec, SERVED.class_names, temperature=1.0, tones=tones)
    monkeypatch.chdir(tmp_path)
    made = _made(served)
    expected = decode(tmp_path / "image.png", Decoding(8, channels, tones))[None].astype(np.float32) / 255
    assert (made["pixels"].shape, made["pixels"].dtype) == ((1, channels, 8, 8), np.float32)
    assert np.abs(made["pixels"] - expected).max() <= 1e-6
    other = decode(tmp_path / "image.png", Decoding(8, channels, Tones(background=0)))[None] / 255
    assert np.abs(made["pixels"] - other).max() > 0.1  # so that the background is seen to matter


@pytest.mark.parametrize("max_value", [None, 65535.0])
@pytest.mark.parametrize("kind", [*DEEP, "16 bits of colour", "planes", "ppm"])
def test_the_lines_about_the_input_refuse_more_than_8_bits(tmp_path, monkeypatch, kind, max_value):
    """Pillow would make all greys above 255 white, and cut off the lower 8 bits of colours."""
    if kind in DEEP:
        name, dtype = DEEP[kind]
        Image.fromarray(np.full((2, 2), 3000, dtype)).save(tmp_path / name)
        (tmp_path / name).rename(tmp_path / "image.png")
    elif kind == "ppm":
        (tmp_path / "image.png").write_bytes(b"P6\n1 1\n4095\n" + b"\x08\x00" * 3)
    else:
        {"planes": tiff_of_planes}.get(kind, png_of_16_bit_colour)(tmp_path / "image.png", 3000)
    served = ServedModel(SERVED.model, SMALL, SERVED.class_names, temperature=1.0, tones=Tones(max_value))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="more than 8 bits"):
        _made(served)


def test_the_lines_about_the_input_refuse_what_pillow_would_lose(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frames = [Image.new("L", (2, 2), value) for value in (1, 200)]
    for kind in ("GIF", "PNG", "TIFF"):
        frames[0].save("image.png", kind, save_all=True, append_images=frames[1:])
        with pytest.raises(ValueError, match="more than one frame"):
            _made(SERVED)
    for bits in (2, 4):
        png_of_low_grey(tmp_path / "image.png", bits, (0, 1, 2, 3), transparent=3)
        with pytest.raises(ValueError, match="a transparent grey"):
            _made(SERVED)


def test_the_lines_about_the_input_take_the_first_view_of_two_as_training_images_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    views = [Image.new("L", (8, 8), value) for value in (1, 200)]
    views[0].save("image.png", "MPO", save_all=True, append_images=views[1:])
    assert Image.open("image.png").format == "MPO"
    assert (
        np.unique(_made(SERVED)["pixels"] * 255).tolist() == np.unique(decode(Path("image.png"), GREY)).tolist() == [1]
    )


def test_how_an_image_becomes_the_input_is_told_in_a_sentence():
    def told(**tones):
        served = ServedModel(SERVED.model, SMALL, SERVED.class_names, temperature=1.0, tones=Tones(**tones))
        return " ".join(model_card(served, None, []).split())

    for part in (
        "EXIF orientation",
        "the grey 7 where",
        "to `L` by",
        "to 8x8 whatever",
        "bilinear",
        "divided by 255",
    ):
        assert part in told(background=7)
    assert "Greys and colours of more than 8 bits are refused." in told()
    assert (
        "Greys of more than 8 bits are multiplied by 255 / 4095 and rounded before that, and these lines refuse them."
        in told(max_value=4095)
    )


def test_the_file_that_a_model_came_from_is_named():
    source = Source("a|b\n.safetensors", "0123456789abcdef" * 4)
    served = ServedModel(SERVED.model, SMALL, SERVED.class_names, temperature=1.0, source=source)
    (line,) = [line for line in model_card(served, None, []).splitlines() if line.startswith("| model file |")]
    assert html.unescape(line) == f"| model file | a|b .safetensors (SHA-256 {'0123456789abcdef' * 4}) |"
    assert line.count("|") == 3
    assert "| model file |" not in model_card(SERVED, None, [])


def test_limits_refer_to_figures_only_where_there_are_some():
    assert "Figures above hold" in model_card(SERVED, SUMMARY, [])
    card = model_card(SERVED, None, [])
    assert "Figures above" not in card
    assert "It has no figures here:" in card


def test_of_a_model_without_a_run_only_the_classes_are_told():
    card = model_card(SERVED, None, ["model.pt2"])
    assert "0. healthy\n1. rare\n2. other" in card
    assert "On the test set" not in card


OF_UPLOADS = {
    "kind": "aggregation",
    "method": "fedchorus",
    "accepted": ["a.safetensors", "b.safetensors"],
    "versions": {"torch": "2"},
    "server": {"model": "cnn2", "accuracy_last": 0.55},
}


def test_a_model_of_uploads_is_told_by_them_and_by_its_one_figure():
    card = model_card(SERVED, OF_UPLOADS, [])
    assert card.startswith("# fedchorus of 2 uploads\n")
    for line in ("| architecture | cnn2 |", "| uploads | 2 |", "| accuracy on its test set | 55.0% |", "0. healthy"):
        assert line in card.splitlines()
    assert "Figures above hold" in card
    untested = model_card(SERVED, {**OF_UPLOADS, "server": {"model": "cnn2", "accuracy_last": None}}, [])
    assert "accuracy on its test set" not in untested
    assert "It has no figures here:" in untested


def test_a_model_of_uploads_that_was_tested_tells_of_its_classes():
    tested = {**SUMMARY["server"], **OF_UPLOADS["server"]}
    lines = model_card(SERVED, {**OF_UPLOADS, "server": tested}, []).splitlines()
    for line in ("| 0 | healthy | 8 | 75.0% | 0.900 |", "## On the test set", "| 50.0% | 100.0% |"):
        assert line in lines


HOSTILE = ("<img src=x>", "![x](http://a.example/t.png)", "a|b", "5. *b*", "- `c`", "[d](javascript:alert(1))", "&lt;")
HONEST = ("T-shirt", "digit_3", "1.5 mm", "café, noir", "it's")


def _card_of(names, *, in_table):
    rows = [{"class": name, "images": 8, "recall": 0.75, "auroc": 0.9} for name in names]
    summary = {**SUMMARY, "server": {**SUMMARY["server"], "by_class": rows}}
    served = ServedModel(FixedLogits([0.0] * len(names)), SMALL, tuple(names), temperature=1.0)
    return model_card(served, summary if in_table else None, ["model.pt2"])


@pytest.mark.parametrize("in_table", [False, True])
def test_names_from_uploads_are_text_and_no_markup(in_table):
    card = _card_of(HOSTILE, in_table=in_table)
    shown = [html.unescape(line) for line in card.splitlines()]
    for j, name in enumerate(HOSTILE):
        assert name not in card
        assert (f"| {j} | {name} | 8 | 75.0% | 0.900 |" if in_table else f"{j}. {name}") in shown
    assert {line.count("|") for line in card.splitlines() if "0.900" in line} <= {6}


def test_names_that_mean_nothing_to_markdown_stay_readable():
    card = _card_of(HONEST, in_table=False)
    assert "\n".join(f"{j}. {name}" for j, name in enumerate(HONEST)) in card


def test_whatever_else_a_run_says_is_text_too():
    told = {"method": "<b>m", "data": "a|b", "models": {"server": "<i>"}, "versions": {"<s>": "1.0"}}
    card = model_card(SERVED, {**SUMMARY, **told}, ["model.pt2"])
    assert not any(mark in card for mark in ("<b>", "a|b", "<i>", "<s>"))
