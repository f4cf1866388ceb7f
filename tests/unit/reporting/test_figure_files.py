import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.figure_files import remove_figures, remove_metrics


def test_only_a_runs_figures_are_removed(tmp_path):
    for name in ("partition.png", "synthetic.svg", "recitals.pdf", "accuracy.csv", "mine.png", "summary.json"):
        (tmp_path / name).touch()
    (tmp_path / "confusion.png").mkdir()
    (tmp_path / "metrics.csv").touch()
    remove_figures(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("accuracy.csv", "confusion.png", "metrics.csv", "mine.png", "summary.json")
    ]
    remove_metrics(tmp_path)
    assert not (tmp_path / "metrics.csv").exists()
    remove_figures(tmp_path / "nowhere")


def test_one_that_cannot_be_removed_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "partition.png").touch()

    def refuse(path, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(OneshotError, match=r"partition.png: cannot be written \(Permission denied\)"):
        remove_figures(tmp_path)
