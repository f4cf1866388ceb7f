"""Finished runs are found again, and only they."""

import json
import os

import pytest

from oneshot_fl.reporting.finished import Finished, adopt, finished


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    (folder / "image.png").write_bytes(b"pixels")
    return tmp_path / "data"


def _config(root, **more):
    data = {"name": "image_folder", "_target_": "oneshot_fl.data.image_folder.image_folder", "root": str(root)}
    proxy = {"name": "noise", "_target_": "oneshot_fl.data.proxy.noise"}
    trainer = {"accelerator": "cpu", "precision": "32-true", "jobs_per_gpu": 1}
    return {"data": data, "proxy": proxy, "seed": 0, "logger": {}, "trainer": trainer, "store": "store", **more}


@pytest.fixture
def code(monkeypatch):
    """Say what digest the code has."""
    return lambda digest: monkeypatch.setattr("oneshot_fl.reporting.finished.digest_of", lambda *_: digest)


def _key(*given, **more):
    return finished(_config(*given, **more)).key


def test_settings_code_and_every_file_count(root, code):
    code("the code")
    key = _key(root)
    assert key == _key(root, store="elsewhere", study="other")
    assert key == _key(root, trainer={"accelerator": "cpu", "precision": "32-true", "jobs_per_gpu": 4})
    others = [_key(root, seed=1), _key(root, logger={"wandb": {}})]  # its dashboard would be missing
    others.append(_key(root, trainer={"accelerator": "cpu", "precision": "bf16-mixed"}))
    code("other code")
    others.append(_key(root))
    code("the code")
    image = root / "train" / "image.png"
    os.utime(image, ns=(0, image.stat().st_mtime_ns + 1))
    others.append(_key(root))
    (root / "train" / "new.png").write_bytes(b"more")
    others.append(_key(root))
    assert len({key, *others}) == 7


def test_data_of_a_users_function_may_come_from_anywhere(root, tmp_path):
    config = _config(root)
    config["data"]["_target_"] = "my_data.load"
    assert finished(config) is None


def _finish(folder, key, status="done"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"key": key, "status": status}))
    (folder / "summary.json").write_text(json.dumps({"method": "dense"}))
    (folder / "metrics.csv").write_text("metric,step,value\n")


def test_a_finished_run_is_found_and_its_files_copied(tmp_path):
    place, done = Finished(tmp_path / "store", "k", "cuda.32-true"), tmp_path / "done"
    assert place.find() is None
    _finish(done, "k")
    place.remember(done)
    assert place.find() == done
    of_this_machine = Finished(tmp_path / "store", "k", "cpu.32-true")
    assert of_this_machine.find() is None  # it was computed otherwise
    assert of_this_machine.find_of_any_machine() == done
    assert adopt(done, tmp_path / "again") == {"method": "dense"}
    assert {path.name for path in (tmp_path / "again").iterdir()} == {"summary.json", "metrics.csv"}
    assert adopt(done, done) == {"method": "dense"}


@pytest.mark.parametrize("damage", ["key", "status", "summary", "trace", "pointer"])
def test_what_is_not_that_run_any_more_is_not_found(tmp_path, damage):
    place, done = Finished(tmp_path / "store", "k", "cpu.32-true"), tmp_path / "done"
    _finish(done, "other" if damage == "key" else "k", "running" if damage == "status" else "done")
    place.remember(done)
    if damage == "summary":
        (done / "summary.json").write_text('{"method"')
    elif damage == "trace":
        (done / "run.json").unlink()
    elif damage == "pointer":
        (tmp_path / "store" / "runs" / "k.cpu.32-true.json").write_text("[]")
    assert place.find() is None
