import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from oneshot_fl.reporting.page.payload import payload
from oneshot_fl.reporting.page.pictures import embedded, figures_of
from oneshot_fl.reporting.page.settings import settings_of
from oneshot_fl.reporting.tables.measures import measure_of

LAST = measure_of("accuracy", which="last")


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


def _rows(runs):
    return [(0, run.label) for run in runs]


def test_what_the_summary_tells_is_drawn_and_not_embedded(with_figures):
    run = with_figures("synthetic", "partition", "guidance", "confusion")
    assert [path.stem for path in figures_of(run)] == ["synthetic", "partition", "guidance"]
    run.summary.update(partition={"class_counts": [[1]]}, guidance=[[1.0]])
    assert [path.stem for path in figures_of(run)] == ["synthetic"]


def test_a_run_of_a_file_has_none(make_run):
    assert figures_of(make_run()) == []


def test_one_seed_of_every_row_comes_first_until_the_room_is_full(with_figures):
    runs = [with_figures("synthetic"), with_figures("synthetic", seed=1), with_figures("synthetic", method="dense")]
    everything = embedded(runs, _rows(runs), budget=10**6)
    assert list(everything) == [0, 2, 1]
    size = len(everything[0]["synthetic"])
    assert list(embedded(runs, _rows(runs), budget=2 * size)) == [0, 2]
    assert embedded(runs, _rows(runs), budget=size - 1) == {}


def test_every_setting_of_a_row_has_one_seed_before_any_has_two(with_figures, tmp_path):
    protocols = [{"clients": {"epochs": epochs}} for epochs in (7, 8)]
    runs = [with_figures("synthetic", seed=seed, settings=each) for each in protocols for seed in (0, 1)]
    room = 2 * len(embedded(runs[:1], _rows(runs[:1]), budget=10**6)[0]["synthetic"])
    cards = payload(runs, settings_of(runs), tmp_path / "r.html", measure=LAST, budget=room)["runs"]
    assert ["pictures" in card for card in cards] == [True, False, True, False]


def test_a_run_without_figures_is_no_seed_of_its_row(with_figures):
    runs = [with_figures(), with_figures("synthetic", method="dense"), with_figures("synthetic", seed=1)]
    runs += [with_figures("synthetic", method="dense", seed=1)]
    assert list(embedded(runs, _rows(runs), budget=10**6)) == [1, 2, 3]


def test_of_two_files_of_a_figure_the_png_is_shown_and_takes_room(with_figures):
    run = with_figures("synthetic", "recitals")
    alone = embedded([run], _rows([run]), budget=10**6)
    for name in ("synthetic", "recitals"):
        (run.folder / f"{name}.svg").write_text("<svg/>" + " " * 10**6)
    assert embedded([run], _rows([run]), budget=10**6) == alone


def test_an_svg_is_shown_where_it_is_alone(with_figures):
    run = with_figures()
    (run.folder / "synthetic.svg").write_text("<svg/>")
    assert embedded([run], _rows([run]), budget=10**6)[0]["synthetic"].startswith("data:image/svg+xml;")


def test_a_picture_that_is_not_whole_is_left_out(with_figures):
    run = with_figures("synthetic", "recitals")
    whole = (run.folder / "synthetic.png").read_bytes()
    for part in (b"", whole[: len(whole) // 2], whole[:60]):
        (run.folder / "synthetic.png").write_bytes(part)
        assert list(embedded([run], _rows([run]), budget=10**6)[0]) == ["recitals"]


def test_an_embedded_picture_is_the_file_with_fewer_colours(with_figures):
    run = with_figures("synthetic")
    url = embedded([run], _rows([run]), budget=10**6)[0]["synthetic"]
    content = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert len(content) < (run.folder / "synthetic.png").stat().st_size
    with Image.open(io.BytesIO(content)) as image, Image.open(run.folder / "synthetic.png") as before:
        difference = np.abs(np.asarray(image.convert("RGB"), dtype=int) - np.asarray(before, dtype=int))
    assert difference.mean() < 40
