"""What a job knows of itself before its configuration is checked."""

import json
import weakref
from types import SimpleNamespace

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from oneshot_fl.launchers import task
from oneshot_fl.launchers.task import number_kept


class _Model:
    """Large, on the device of the next job."""


def test_a_job_of_a_sweep_that_failed_holds_nothing_of_what_it_made(tmp_path, monkeypatch, capsys):
    def fails(*_args):
        model = _Model()
        held.append(weakref.ref(model))
        raise RuntimeError("out of memory")

    held, raised = list[weakref.ref[_Model]](), list[Exception]()
    hydras = SimpleNamespace(
        runtime=SimpleNamespace(output_dir=str(tmp_path)),
        mode=RunMode.MULTIRUN,
        job=SimpleNamespace(num=0),
        sweeper=SimpleNamespace(_target_=""),
    )
    monkeypatch.setattr(task, "HydraConfig", SimpleNamespace(get=lambda: hydras))
    monkeypatch.setattr(task, "OF_JOBS", raised)
    for name, answer in {"choices": {}, "resolved": None, "check_objective": None}.items():
        monkeypatch.setattr(task, name, lambda *_args, answer=answer: answer)
    monkeypatch.setattr(task, "job", fails)
    with pytest.raises(RuntimeError) as end:
        task.run(OmegaConf.create({}))
    assert raised == [end.value]  # what tells at the door that it is no mistake in the words
    assert held[0]() is None
    assert "RuntimeError: out of memory; the traceback is in" in capsys.readouterr().err


def test_a_single_run_in_the_folder_of_a_sweeps_job_keeps_its_number(tmp_path):
    assert number_kept(tmp_path) == {}
    (tmp_path / "run.json").write_text(json.dumps({"job": 3, "status": "failed"}))
    assert number_kept(tmp_path) == {"job": 3}
