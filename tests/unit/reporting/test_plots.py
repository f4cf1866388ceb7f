from itertools import islice

import numpy as np
import pytest
import torch

from oneshot_fl.parts.uploads import Recital
from oneshot_fl.reporting.earlier import FIGURES
from oneshot_fl.reporting.plots import (
    BUBBLE,
    LONGEST_SIDE,
    MOST_NAMED,
    accuracy_curve,
    confusion_map,
    draw_all,
    guidance_maps,
    image_grid,
    line_styles,
    literal,
    new_figure,
    partition_bubbles,
    recital_grid,
    save,
    synthetic_grid,
)


def test_bubbles_have_areas_in_proportion_to_counts_and_none_for_zero():
    (axes,) = partition_bubbles(np.array([[4, 0], [1, 2]]), ("a", "b")).axes
    (bubbles,) = axes.collections
    right, top = axes.child_axes
    assert [label.get_text() for label in right.get_yticklabels()] == ["4", "3"]
    assert [label.get_text() for label in top.get_xticklabels()] == ["5", "2"]
    assert axes.get_legend().get_title().get_text() == "samples"
    assert bubbles.get_offsets().tolist() == [[0, 0], [0, 1], [1, 1]]
    np.testing.assert_allclose(bubbles.get_sizes() / bubbles.get_sizes()[0], [1, 0.25, 0.5])


def test_figures_of_many_classes_and_clients_stay_of_a_size_that_a_screen_shows():
    names = tuple(f"class {j}" for j in range(200))
    counts = np.arange(100 * 200).reshape(100, 200)
    maps = {
        "partition": partition_bubbles(counts, names),
        "confusion": confusion_map(np.eye(200), names),
        "guidance": guidance_maps(torch.rand(200, 100), names, [f"client {k}" for k in range(100)]),
    }
    for figure in maps.values():
        assert max(figure.get_size_inches()) <= 2 * LONGEST_SIDE + 5
        assert all(len(axis.get_ticklocs()) <= MOST_NAMED for axes in figure.axes for axis in (axes.xaxis, axes.yaxis))
    (bubbles,) = maps["partition"].axes[0].collections
    assert bubbles.get_sizes().max() == pytest.approx(BUBBLE * (LONGEST_SIDE / 200 / 0.45) ** 2)
    named = [label.get_text() for label in maps["confusion"].axes[0].get_yticklabels()]
    assert named == [f"class {j}" for j in range(0, 200, 4)]


def test_guidance_maps_show_both_normalisations_client_by_class():
    U = torch.tensor([[3.0, 1.0], [1.0, 4.0]])
    rows, columns, bar = guidance_maps(U, ("cat", "dog"), ("client 1", "client 3")).axes
    assert [label.get_text() for label in rows.get_yticklabels()] == ["1", "3"]  # others have decoders or are not used
    assert [label.get_text() for label in columns.get_xticklabels()] == ["cat", "dog"]
    assert bar.get_ylabel() == "share"
    np.testing.assert_allclose(rows.images[0].get_array(), [[0.75, 0.2], [0.25, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(columns.images[0].get_array(), [[0.75, 0.25], [0.2, 0.8]], rtol=1e-6)
    assert [text.get_text() for text in rows.texts] == ["0.75", "0.20", "0.25", "0.80"]


def test_the_confusion_map_shows_shares_of_each_class_and_writes_the_counts():
    axes, bar = confusion_map(np.array([[3, 1], [0, 0]]), ("a", "b")).axes
    assert bar.get_ylabel() == "share of the class"
    np.testing.assert_allclose(axes.images[0].get_array().filled(-1), [[0.75, 0.25], [-1, -1]])
    assert [text.get_text() for text in axes.texts] == ["3", "1", "0", "0"]


def test_the_curve_has_the_server_and_a_line_an_ensemble():
    (axes,) = accuracy_curve([{"round": 1, "accuracy": 0.1}, {"round": 2, "accuracy": 0.3}], {"uniform": 0.5}).axes
    server, ensemble = axes.lines
    assert server.get_xydata().tolist() == [[1, 0.1], [2, 0.3]]
    assert set(ensemble.get_ydata()) == {0.5}
    assert all(float(tick).is_integer() for tick in axes.xaxis.get_major_locator().tick_values(1, 2))


def test_ensembles_that_would_hide_one_another_share_a_line():
    (axes,) = accuracy_curve([{"round": 1, "accuracy": 0.1}], {"a": 0.5, "b": 0.25, "c": 0.5}).axes
    assert [line.get_label() for line in axes.lines] == ["server", "ensemble: a, c (50.0%)", "ensemble: b (25.0%)"]


def test_lines_differ_in_colour_or_dashes_and_leave_earlier_ones_visible():
    styles = list(islice(line_styles(), 28))
    assert len({(style["color"], style["linestyle"]) for style in styles}) == 28
    widths = [style["linewidth"] for style in styles]
    assert widths == sorted(widths, reverse=True)


def test_the_grid_has_one_labelled_row_a_class_that_is_there_evenly_out_of_all_its_images():
    images = torch.stack([torch.full((1, 4, 4), value, dtype=torch.uint8) for value in (51, 0, 102, 0, 153)])
    (axes,) = image_grid({"made": (images, torch.tensor([1, 1, 1, 1, 3]))}, ("a", "b", "c", "d"), columns=2).axes
    canvas = axes.images[0].get_array()
    assert canvas.shape == (10, 10, 3)
    corners = [canvas[0, 0, 0], canvas[0, 5, 0], canvas[5, 0, 0], canvas[5, 5, 0]]
    np.testing.assert_allclose(corners, [0.2, 0.4, 0.6, 1])  # the first and the third of class b; white where none is
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "d"]


def test_a_grid_of_many_classes_ends():
    block = (torch.zeros(60, 1, 2, 2, dtype=torch.uint8), torch.arange(60))
    (axes,) = image_grid({"made": block}, tuple("x" * 60)).axes
    assert axes.images[0].get_array().shape == (50 * 3, 10 * 3, 3)


def test_real_images_of_the_same_class_stand_beside_synthetic_ones():
    made = torch.full((1, 1, 2, 2), 51, dtype=torch.uint8), torch.tensor([1])
    real = torch.tensor([0, 102], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 2, 2), torch.tensor([0, 1])
    (axes,) = synthetic_grid(made, real, ("a", "b")).axes
    canvas = axes.images[0].get_array()
    assert [round(255 * canvas[0, column, 0]) for column in (0, 3, 11 * 3)] == [51, 255, 102]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["synthetic, last round", "real"]


COUNTS = np.ones((2, 2), dtype=int)
REAL = torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.arange(2)
FORMULAS = ("$x^$", "a$b$c", "$$", r"\frac$ $", "plain", r"a\$b")


@pytest.mark.parametrize("name", FORMULAS)
def test_a_users_text_is_drawn_as_it_is(name, tmp_path):
    figure, axes = new_figure(2, 2)
    text = axes.set_title(literal(name))
    save(figure, tmp_path / "figure.png")  # a formula that is none fails here
    assert text._preprocess_math(text.get_text()) == (name, False)


def test_a_run_whose_classes_and_ensembles_are_named_like_formulas_is_drawn(tmp_path):
    counts = np.ones((2, len(FORMULAS)), dtype=int)
    images = torch.zeros(len(FORMULAS), 1, 4, 4, dtype=torch.uint8)
    drawn = draw_all(
        tmp_path,
        counts=counts,
        class_names=FORMULAS,
        guidance=torch.eye(len(FORMULAS)),
        history=[{"round": 1, "accuracy": 0.5}],
        ensembles=dict.fromkeys(FORMULAS, 0.5),
        confusion=np.eye(len(FORMULAS), dtype=int),
        synthetic=(images, torch.arange(len(FORMULAS))),
        real=(images, torch.arange(len(FORMULAS))),
        recitals=(Recital(images, torch.arange(len(FORMULAS)), "key"),),
        used=["client 0"],
        note=pytest.fail,
    )
    assert sorted(drawn) == ["accuracy", "confusion", "guidance", "partition", "recitals", "synthetic"]
    assert set(drawn) == set(FIGURES)
    assert all(path.stat().st_size > 1000 for path in drawn.values())


@pytest.mark.filterwarnings("error")  # a layout that has no room is only warned of
@pytest.mark.parametrize("length", [35, 200])
def test_a_few_classes_with_long_names_leave_room_for_what_is_drawn(length, tmp_path):
    names = tuple(f"{'metastatic adenocarcinoma ' * 8}"[:length] + end for end in ("0", "1"))
    figures = (
        partition_bubbles(COUNTS, names),
        confusion_map(COUNTS, names),
        guidance_maps(torch.eye(2), names, ("client 0", "client 1")),
        synthetic_grid(REAL, REAL, names),
    )
    for figure in figures:
        save(figure, tmp_path / "figure.png")
        axes = figure.axes[0]
        assert min(axes.get_window_extent().size) > 0.75 * figure.dpi
        inside = axes.get_tightbbox().transformed(figure.transFigure.inverted())
        assert min(*inside.min, *(1 - inside.max)) > -0.02
    ends = [label.get_text()[-8:] for label in figures[0].axes[0].get_xticklabels()]
    assert ends == [name[-8:] for name in names]


def test_a_run_without_rounds_has_its_partition_and_confusion_only(tmp_path):
    nothing = {
        "real": REAL,
        "guidance": None,
        "history": [],
        "ensembles": {"uniform": 0.5},
        "synthetic": None,
        "recitals": (),
        "used": [],
    }
    given = {"counts": COUNTS, "class_names": ("a", "b"), "confusion": COUNTS}
    assert list(draw_all(tmp_path, **given, **nothing, note=pytest.fail)) == ["partition", "confusion"]


def test_a_client_recites_in_one_row_from_its_first_class_to_its_last():
    images = torch.tensor([30, 10, 20], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    recitals = (Recital(images, torch.tensor([2, 0, 1]), "key"), Recital(images[:1], torch.tensor([5]), "key"))
    (axes,) = recital_grid(recitals, ("client 0", "client 2"), columns=3).axes
    (picture,) = axes.get_images()
    assert np.round(255 * picture.get_array()[0, [0, 3, 6], 0]).tolist() == [10, 20, 30]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["client 0", "client 2"]


def test_a_figure_that_cannot_be_drawn_is_told_of_and_the_others_are_drawn(tmp_path):
    (tmp_path / "partition.png").mkdir()
    notes: list[str] = []
    drawn = draw_all(
        tmp_path,
        counts=COUNTS,
        class_names=("a", "b"),
        guidance=torch.eye(2),
        used=["client 0", "client 1"],
        history=[],
        ensembles={},
        confusion=COUNTS,
        synthetic=None,
        real=REAL,
        recitals=(),
        note=notes.append,
    )
    assert list(drawn) == ["confusion", "guidance"]
    assert [note.split(" (")[0] for note in notes] == ["partition.png could not be drawn"]


@pytest.mark.parametrize("also", ["svg", "pdf"])
def test_another_format_stands_beside_the_pictures(tmp_path, also):
    nothing = {
        "real": REAL,
        "guidance": None,
        "history": [],
        "ensembles": {},
        "synthetic": None,
        "recitals": (),
        "used": [],
    }
    given = {"counts": COUNTS, "class_names": ("a", "b"), "confusion": COUNTS}
    draw_all(tmp_path, **given, **nothing, note=pytest.fail, also=also)
    names = {f"{name}.{kind}" for name in ("partition", "confusion") for kind in ("png", also)}
    assert {path.name for path in tmp_path.iterdir()} == names
