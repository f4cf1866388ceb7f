import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.rank_picture import critical_differences, draw_ranks
from oneshot_fl.reporting.tables.ranking import ranked

BLOCKS = [{name: 0.9 - 0.1 * order.index(name) for name in "abc"} for order in ("abc", "abc", "acb", "bac")]


def test_names_with_their_ranks_and_a_bar_over_what_is_not_told_apart():
    (axes,) = critical_differences(ranked(BLOCKS * 4)).axes
    texts = [text.get_text().strip() for text in axes.texts]
    assert texts[:3] == ["a (1.25)", "b (2.00)", "c (2.75)"]
    assert texts[3] == "critical difference 0.83, 16 blocks"
    bars = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 4]
    assert [[round(float(end), 2) for end in bar] for bar in bars] == [[1.21, 2.04], [1.96, 2.79]]


def test_it_is_written(tmp_path):
    path = draw_ranks(ranked(BLOCKS), tmp_path / "new")
    assert path.name == "ranks.png"
    assert path.stat().st_size > 1000


def test_a_place_that_is_none_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OneshotError, match=r"^\S+/file: cannot be written \(File exists\)"):
        draw_ranks(ranked(BLOCKS), tmp_path / "file")
    (tmp_path / "ranks.png").mkdir()
    with pytest.raises(OneshotError, match=rf"^{tmp_path}: cannot be written \(Is a directory\)"):
        draw_ranks(ranked(BLOCKS), tmp_path)


def test_long_names_are_inside_the_picture_and_leave_room_for_the_axis():
    names = [f"fedhydra (ensemble.in_model=False, objective.adv.weight={n})" for n in range(9)]
    figure = critical_differences(ranked([{name: order * n for n, name in enumerate(names)} for order in (1, 2, 3)]))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    width = figure.bbox.width
    boxes = [text.get_window_extent() for text in axes.texts]
    space = 5  # each text ends and begins with one, in pixels
    assert all(box.x0 >= -space and box.x1 <= width + space for box in boxes)
    first, last = axes.transData.transform([(1, 0), (9, 0)])[:, 0]
    assert last - first > 300
