import io

import torch
from PIL import Image

from oneshot_fl.serving.model import ServedModel
from oneshot_fl.serving.table import write_predictions
from tests.parts import SMALL, FixedLogits


def test_a_line_an_image_and_a_column_a_class(tmp_path):
    Image.new("L", (3, 3)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("")
    Image.new("L", (3, 3)).save(tmp_path / "c,d.png")
    logits = torch.tensor([0.5, 0.25, 0.25]).log().tolist()
    model = ServedModel(FixedLogits(logits), SMALL, ("cat", "dog, small", "none"), temperature=1.0)
    out, problems = io.StringIO(), []
    unusable = write_predictions(model, [tmp_path], out, abstain=0.0, max_value=None, problem=problems.append)
    assert out.getvalue() == (
        'path,class,probability,cat,"dog, small",none\n'
        f"{tmp_path}/a.png,cat,0.500000,0.500000,0.250000,0.250000\n"
        f'"{tmp_path}/c,d.png",cat,0.500000,0.500000,0.250000,0.250000\n'
    )
    assert (unusable, problems) == (1, [f"{tmp_path}/b.png is not a readable image"])
    silent = io.StringIO()
    write_predictions(model, [tmp_path / "a.png"], silent, abstain=0.6, max_value=None, problem=problems.append)
    assert silent.getvalue().endswith("a.png,,0.500000,0.500000,0.250000,0.250000\n")
