"""What a job knows of itself before its configuration is checked."""

import json
import weakref
from types import SimpleNamespace

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from oneshot_fl.errors import OneshotError
from oneshot_fl.launchers import task
from oneshot_fl.launchers.task import check_sources, number_kept


class _Model:
    """Large, on the device of the next job."""


@pytest.mark.parametrize("kind", [RuntimeError, OneshotError])
def test_a_job_of_a_sweep_that_failed_holds_nothing_of_what_it_made(kind, tmp_path, monkeypatch, capsys):
    def computes():
        model = _Model()
        held.append(weakref.ref(model))
        raise RuntimeError("full")

    def fails(*_args, **_options):
        try:
            computes()
        except RuntimeError as error:
            raise kind("out of memory") from error

    held, raised = list[weakref.ref[_Model]](), list[Exception]()
    hydras = SimpleNamespace(
        runtime=SimpleNamespace(output_dir=str(tmp_path)),
        mode=RunMode.MULTIRUN,
        job=SimpleNamespace(num=0),
        sweeper=SimpleNamespace(_target_=""),
    )
    monkeypatch.setattr(task, "HydraConfig", SimpleNamespace(get=lambda: hydras))
    monkeypatch.setattr(task, "OF_JOBS", raised)
    for name, answer in {"choices": {}, "resolved": None, "check_read": None, "check_objective": None}.items():
        monkeypatch.setattr(task, name, lambda *_args, answer=answer: answer)
    monkeypatch.setattr(task, "job", fails)
    with pytest.raises(kind) as end:
        task.run(OmegaConf.create({}))
    assert raised == ([end.value] if kind is RuntimeError else [])  # what tells at the door that no word was wrong
    assert held[0]() is None
    assert "out of memory" in capsys.readouterr().err


def test_a_job_of_other_sources_than_its_sweep_began_with_is_refused(monkeypatch):
    monkeypatch.setattr(task, "source_code_of", lambda config: config["sources"])
    with pytest.raises(OneshotError, match=r"not what the sweep began with, .*; start the sweep again$"):
        check_sources({"sources": "new"}, "old")
    for now, before in (("old", "old"), (None, "old"), ("new", None)):  # what cannot be told, a run says itself
        check_sources({"sources": now}, before)


def test_a_single_run_in_the_folder_of_a_sweeps_job_keeps_its_number(tmp_path):
    assert number_kept(tmp_path) == {}
    (tmp_path / "run.json").write_text(json.dumps({"job": 3, "status": "failed"}))
    assert number_kept(tmp_path) == {"job": 3}
