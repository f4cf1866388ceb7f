"""What a job knows of itself before its configuration is checked."""

import json
import weakref
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from oneshot_fl.config.compose import config_dir, without_hydras
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


def test_a_single_run_of_what_a_file_of_ones_own_is_called_too_ends_before_it_is_looked_up(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "config.yaml").write_text("seed: 7\n")
    words = ["hydra.job.num=0", "hydra.mode=RUN", f"hydra.searchpath=[file://{tmp_path}]"]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        whole = compose("config", [*words, f"hydra.runtime.output_dir={tmp_path}"], return_hydra_config=True)
    monkeypatch.setattr(HydraConfig.instance(), "cfg", whole)
    monkeypatch.setattr(task, "job", None)
    with pytest.raises(SystemExit, match="2"):
        task.run(without_hydras(whole.copy()))
    assert capsys.readouterr().err.startswith(f"oneshot_fl: config.yaml: {tmp_path}/config.yaml is not read, ")


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
