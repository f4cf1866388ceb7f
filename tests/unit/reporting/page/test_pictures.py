import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from oneshot_fl.reporting.page.pictures import embedded, figures_of


@pytest.fixture
def with_figures(make_run, tmp_path):
    def make(*names, seed=0, **changes):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name in names:
            noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(noise).save(folder / f"{name}.png")
        return replace(make_run(seed=seed, **changes), folder=folder)

    return make


def test_what_the_summary_tells_is_drawn_and_not_embedded(with_figures):
    run = with_figures("synthetic", "partition", "guidance", "confusion")
    assert [path.stem for path in figures_of(run)] == ["synthetic", "partition", "guidance"]
    run.summary.update(partition={"class_counts": [[1]]}, guidance=[[1.0]])
    assert [path.stem for path in figures_of(run)] == ["synthetic"]


def test_a_run_of_a_file_has_none(make_run):
    assert figures_of(make_run()) == []


def test_one_seed_of_every_row_comes_first_until_the_room_is_full(with_figures):
    runs = [with_figures("synthetic"), with_figures("synthetic", seed=1), with_figures("synthetic", method="dense")]
    everything = embedded(runs, budget=10**6)
    assert list(everything) == [0, 2, 1]
    size = len(everything[0]["synthetic"])
    assert list(embedded(runs, budget=2 * size)) == [0, 2]
    assert embedded(runs, budget=size - 1) == {}


def test_a_picture_that_is_not_whole_is_left_out(with_figures):
    run = with_figures("synthetic", "recitals")
    whole = (run.folder / "synthetic.png").read_bytes()
    for part in (b"", whole[: len(whole) // 2], whole[:60]):
        (run.folder / "synthetic.png").write_bytes(part)
        assert list(embedded([run], budget=10**6)[0]) == ["recitals"]


def test_an_embedded_picture_is_the_file_with_fewer_colours(with_figures):
    run = with_figures("synthetic")
    url = embedded([run], budget=10**6)[0]["synthetic"]
    content = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert len(content) < (run.folder / "synthetic.png").stat().st_size
    with Image.open(io.BytesIO(content)) as image, Image.open(run.folder / "synthetic.png") as before:
        difference = np.abs(np.asarray(image.convert("RGB"), dtype=int) - np.asarray(before, dtype=int))
    assert difference.mean() < 40
