import json

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.earlier import holds, remove_figures, remove_logged, require_free, tell_of_export


def test_only_a_runs_figures_are_removed(tmp_path):
    for name in ("partition.png", "synthetic.svg", "recitals.pdf", "accuracy.csv", "mine.png", "summary.json"):
        (tmp_path / name).touch()
    (tmp_path / "confusion.png").mkdir()
    (tmp_path / "metrics.csv").touch()
    remove_figures(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("accuracy.csv", "confusion.png", "metrics.csv", "mine.png", "summary.json")
    ]
    remove_logged(tmp_path)
    assert not (tmp_path / "metrics.csv").exists()
    remove_figures(tmp_path / "nowhere")


def test_what_loggers_kept_is_removed_and_nothing_that_is_not_theirs(tmp_path):
    (tmp_path / "config.yaml").write_text("logger: {csv: {name: .}, board: {name: events}, odd: {name: ../mine}}")
    kept = ("mine/metrics.csv", "tensorboard/notes.txt", "wandb/run-1/metrics.csv")
    events = "events.out.tfevents.1795667996.vm.1.0"
    for name in (*kept, f"tensorboard/{events}", "tensorboard/hparams.yaml", f"events/version_0/{events}"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    remove_logged(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {*kept, "config.yaml"}


@pytest.mark.parametrize("config", [b"[]", b"logger: {", b"\xff", None])
def test_events_are_removed_whatever_lies_where_the_configuration_should(tmp_path, config):
    events = tmp_path / "tensorboard" / "events.out.tfevents.1"
    events.parent.mkdir()
    events.touch()
    if config is not None:
        (tmp_path / "config.yaml").write_bytes(config)
    remove_logged(tmp_path)
    assert not events.exists()


def test_events_in_a_folder_that_another_run_lies_in_stay(tmp_path):
    events = tmp_path / "tensorboard" / "events.out.tfevents.1"
    events.parent.mkdir()
    for path in (events, events.parent / "run.json"):
        path.touch()
    remove_logged(tmp_path)
    assert events.exists()


def test_exports_of_other_model_files_are_not_of_the_model_before(tmp_path, capsys):
    (tmp_path / "export" / "other").mkdir(parents=True)
    tell_of_export(tmp_path)
    assert capsys.readouterr().err == ""
    (tmp_path / "export" / "model.onnx").touch()
    tell_of_export(tmp_path)
    assert "export: is of the model before this one" in capsys.readouterr().err


def test_a_result_is_told_of_before_another_takes_its_place(tmp_path, capsys):
    require_free(tmp_path / "nowhere")
    (tmp_path / "run.json").write_text('{"method": "dense", "seed": 3}')
    require_free(tmp_path)  # one that did not end
    assert capsys.readouterr().err == ""
    (tmp_path / "summary.json").write_text('{"method": "dense", "seed": 2}')
    require_free(tmp_path)
    assert f"{tmp_path}: holds a finished run (method dense, seed 2), which" in capsys.readouterr().err


def test_a_folder_holds_the_result_of_a_summary_until_another_is_written(tmp_path):
    summary = {"seed": 0, "server": {"accuracy_last": 0.5}, "seconds": 1.0}
    assert holds(tmp_path, summary)
    (tmp_path / "summary.json").write_text(json.dumps(summary, indent=1))
    assert holds(tmp_path, summary | {"seconds": 2.0})
    assert not holds(tmp_path, summary | {"seed": 1})
    assert not holds(tmp_path, summary | {"server": {"accuracy_last": 0.25}})


def test_one_that_cannot_be_removed_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "partition.png").touch()

    def refuse(path, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(OneshotError, match=r"partition.png: cannot be written \(Permission denied\)"):
        remove_figures(tmp_path)
