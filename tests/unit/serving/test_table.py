import csv
import io

import pytest
import torch
from PIL import Image

from oneshot_fl.serving.model import ServedModel
from oneshot_fl.serving.table import write_predictions
from tests.parts import SMALL, FixedLogits


def _model():
    logits = torch.tensor([0.5, 0.25, 0.25]).log().tolist()
    return ServedModel(FixedLogits(logits), SMALL, ("cat", "dog, small", "none"), temperature=1.0)


def _written(answers, *, as_csv):
    out, problems = io.StringIO(), []
    unusable = write_predictions(answers, _model().class_names, out, as_csv=as_csv, problem=problems.append)
    assert unusable == len(problems)
    return out.getvalue(), problems


def test_a_line_an_image_and_a_column_a_class(tmp_path):
    Image.new("L", (3, 3)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("")
    Image.new("L", (3, 3)).save(tmp_path / "c,d.png")
    text, problems = _written(_model().answers([tmp_path]), as_csv=True)
    assert text == (
        'path,class,probability,cat,"dog, small",none\n'
        f"{tmp_path}/a.png,cat,0.500000,0.500000,0.250000,0.250000\n"
        f'"{tmp_path}/c,d.png",cat,0.500000,0.500000,0.250000,0.250000\n'
    )
    assert problems == [f"{tmp_path}/b.png is not a readable image: remove or replace it"]


def test_where_no_class_is_named_the_field_is_empty_and_a_reader_is_told(tmp_path):
    image = torch.zeros(1, 3, 3, dtype=torch.uint8)
    assert _written(_model().answers(image, abstain=0.6), as_csv=True)[0].splitlines()[1] == (
        "0,,0.500000,0.500000,0.250000,0.250000"
    )
    assert _written(_model().answers(image, abstain=0.6), as_csv=False)[0] == "0: unsure (50.0%)\n"
    assert _written(_model().answers(image), as_csv=False)[0] == "0: cat (50.0%)\n"


FORGED = "a.png: cat (99.0%)\nb\x1b[2K\u3000\udce9.png"


def test_a_name_makes_no_second_line_and_its_bytes_are_left_to_whatever_prints_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good").mkdir()
    Image.new("L", (3, 3)).save(tmp_path / "good" / FORGED)
    (tmp_path / FORGED).write_text("")
    one_line = "a.png: cat (99.0%) b?[2K \udce9.png"
    text, problems = _written(_model().answers(["good", FORGED]), as_csv=False)
    assert text == f"good/{one_line}: cat (50.0%)\n"
    assert problems == [f"{one_line} is not a readable image: remove or replace it"]


FORMULAS = ("=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "＝1", "a;=1")
MADE_TEXT = ("'=HYPERLINK(1)", "'+1", "'-1", "'@SUM(1)", "'\t'=1", "'＝1", "a;'=1")


def test_no_field_is_a_formula_to_a_spreadsheet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("L", (3, 3)).save("=a.png")
    logits = [1.0] + [0.0] * (len(FORMULAS) - 1)
    names = (*FORMULAS, "T-shirt", "a = b")
    served = ServedModel(FixedLogits([*logits, 0.0, 0.0]), SMALL, names, temperature=1.0)
    out = io.StringIO(newline="")
    assert write_predictions(served.answers("=a.png"), names, out, as_csv=True, problem=print) == 0
    header, row = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert tuple(header[3:]) == (*MADE_TEXT, "T-shirt", "a = b")
    assert row[:2] == ["./=a.png", MADE_TEXT[0]]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("x\r=1.png", "x\r'=1.png"),
        ("x\n+1.png", "x\n'+1.png"),
        ("a;=1.png", "a;'=1.png"),
        ("=a\r=1.png", "./=a\r'=1.png"),
        ("x\ry = -1.png", "x\ry = -1.png"),
    ],
)
def test_a_path_with_a_line_break_is_one_field_and_no_formula(name, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("L", (3, 3)).save(name)
    text, _ = _written(_model().answers(name), as_csv=True)
    assert "\r\n" not in text
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))] == ["path", told]
