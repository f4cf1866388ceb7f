"""One job: what is remembered of a run is what it was made of."""

import json
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from oneshot_fl.code import _seen
from oneshot_fl.job import job

MODULE = "a_net_of_a_user"


@dataclass(frozen=True)
class Bound:
    """As much of an experiment as a job looks at."""

    record: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "image.png").write_bytes(b"pixels")
    return folder


@pytest.fixture
def code(tmp_path, monkeypatch):
    """The file of a user's model; what this process knows of it is forgotten in the end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / f"{MODULE}.py"
    file.write_text("width = 1\n")
    yield file
    _forget()


def _forget() -> None:
    """As a new process would not know it."""
    sys.modules.pop(MODULE, None)
    _seen.pop(MODULE, None)


@pytest.fixture
def runs(root, code, tmp_path, monkeypatch):
    """A function that runs a job, while something is done, and says whether it ran at all."""
    ran = []

    def run(_experiment, folder):
        ran.append(folder)
        for name in ("config.yaml", "server.safetensors"):
            (folder / name).write_text("whole")
        summary = {"server": {"accuracy_last": 0.5}}
        (folder / "summary.json").write_text(json.dumps(summary))
        return summary

    monkeypatch.setattr("oneshot_fl.pipeline.run", run)
    config = {
        "data": {"name": "image_folder", "_target_": "oneshot_fl.data.image_folder.image_folder", "root": str(root)},
        "proxy": {"name": "noise", "_target_": "oneshot_fl.data.proxy.noise"},
        "partition": {"name": "iid", "_target_": "oneshot_fl.data.partition.iid"},
        "model": {"name": "mine", "_target_": f"{MODULE}.width"},
        "logger": {},
        "trainer": {"accelerator": "cpu", "precision": "32-true", "jobs_per_gpu": 1},
        "store": str(tmp_path / "store"),
    }

    def runs(meanwhile=lambda: None) -> bool:
        before = len(ran)
        job(lambda: (meanwhile(), Bound())[1], {}, config, tmp_path / "run")
        return len(ran) > before

    return runs


def test_a_run_is_remembered_and_the_same_one_is_done_before(runs, tmp_path, capsys):
    assert runs()
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["status"], told["arithmetic"], len(told["key"])) == ("done", "cpu.32-true", 20)
    assert not runs()
    assert "done before" in capsys.readouterr().out


def test_a_run_that_read_edited_code_is_not_remembered_as_one_of_the_code_before(runs, code, tmp_path):
    def edit():
        code.write_text("width = 200\n")
        __import__(MODULE)

    assert runs(edit)
    assert not {"key", "arithmetic"} & json.loads((tmp_path / "run" / "run.json").read_text()).keys()
    _forget()
    code.write_text("width = 1\n")
    assert runs()
    assert not runs()


def test_a_run_whose_data_changed_is_not_remembered_as_one_of_the_data_before(runs, root):
    new = root / "new.png"
    assert runs(lambda: new.write_bytes(b"more"))
    new.unlink()
    assert runs()
    assert not runs()
