import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from filelock import FileLock

from oneshot_fl.artifacts import Artifact
from oneshot_fl.disk import remove
from oneshot_fl.errors import OneshotError
from oneshot_fl.inventory import KEY, Holding, described, holdings, size, sweep
from oneshot_fl.locks import LEASED, lock_of
from oneshot_fl.runs import remember_run
from oneshot_fl.store import Store


@pytest.fixture
def keys(tmp_path):
    """A store with artifacts of two phases, the first one old; their keys."""
    store = Store(tmp_path, note=lambda _: None)
    phases = ("clients", "clients", "distill")
    made = [store.get_or_make(p, {"a": a}, lambda _: Artifact({"w": torch.ones(3)}, {})) for a, p in enumerate(phases)]
    old = time.time() - 3 * 24 * 60 * 60
    os.utime(tmp_path / "clients" / made[0].key, (old, old))
    (tmp_path / "clients" / "notes.txt").write_text("the user's own")
    return [artifact.key for artifact in made]


def _swept(root, *, phase=None, older_than=None, dry_run=False):
    found = sweep(root, phase=phase, older_than=older_than, dry_run=dry_run)
    return {one.path.name for one in found if not one.is_lock}


def test_what_a_store_holds(tmp_path, keys):
    (tmp_path / "clients" / f"{keys[0]}.damaged").mkdir()
    (tmp_path / "distill" / keys[2] / "manifest.json").write_text("{}")
    found = {one.path.name: one for one in holdings(tmp_path) if not one.is_lock}
    assert {name: one.kind for name, one in found.items()} == {
        keys[0]: "artifact",
        keys[1]: "artifact",
        keys[2]: "damaged",
        f"{keys[0]}.damaged": "damaged",
    }
    whole = found[keys[1]]
    assert (whole.phase, whole.key) == ("clients", keys[1])
    assert whole.bytes == sum(file.stat().st_size for file in whole.path.iterdir())
    assert found[keys[0]].days(time.time()) == pytest.approx(3, abs=0.1)


def test_leftovers_go_and_artifacts_stay(tmp_path, keys):
    left = {f"{keys[0]}.work", f"{keys[1]}.new", f"{keys[2]}.damaged"}
    for name in left:
        (tmp_path / "clients" / name).mkdir()
        (tmp_path / "clients" / name / "rounds.pt").touch()
    assert _swept(tmp_path, dry_run=True) == left
    assert all((tmp_path / "clients" / name).is_dir() for name in left)
    assert _swept(tmp_path) == left
    assert {path.name for path in tmp_path.glob("*/*")} == {*keys, "notes.txt"}


def test_a_damaged_artifact_goes(tmp_path, keys):
    (tmp_path / "clients" / keys[1] / "tensors.safetensors").write_bytes(b"")
    assert _swept(tmp_path) == {keys[1]}
    assert not (tmp_path / "clients" / keys[1]).exists()


def test_what_a_process_holds_stays(tmp_path, keys):
    work = tmp_path / "clients" / f"{keys[1]}.work"
    work.mkdir()
    with FileLock(work.with_suffix(".lock")):
        assert _swept(tmp_path, phase="clients") == {keys[0]}
        assert work.with_suffix(".lock").exists()
    assert work.is_dir()
    assert _swept(tmp_path) == {work.name}


def test_what_a_process_leases_stays(tmp_path, keys):
    (tmp_path / LEASED).touch()
    with lock_of(tmp_path / "clients" / f"{keys[1]}.lock", leased=True):
        assert _swept(tmp_path, phase="clients") == {keys[0]}
    assert _swept(tmp_path, phase="clients") == {keys[1]}


@pytest.mark.parametrize(
    ("chosen", "gone"), [({"older_than": 2}, {0}), ({"phase": "clients"}, {0, 1}), ({"phase": "distill"}, {2})]
)
def test_whole_artifacts_go_by_age_and_phase(tmp_path, keys, chosen, gone):
    assert _swept(tmp_path, **chosen) == {keys[number] for number in gone}
    assert {one.key for one in holdings(tmp_path) if one.kind == "artifact"} == {
        key for number, key in enumerate(keys) if number not in gone
    }


def test_what_is_remembered_of_runs_goes_only_by_name_or_with_their_folders(tmp_path, keys):
    run = tmp_path / "the run"
    run.mkdir()
    done, gone, damaged = (tmp_path / "runs" / f"{key}.cpu.32-true.json" for key in keys)
    remember_run(done, run)
    remember_run(gone, tmp_path / "elsewhere")
    damaged.write_text("[]")
    for file in (done, gone, damaged):
        os.utime(file, (0, 0))
    found = {one.path: (one.kind, one.what) for one in holdings(tmp_path) if one.phase == "runs"}
    assert found == {
        done: ("run", str(run)),
        gone: ("leftover", f"{tmp_path / 'elsewhere'} is gone"),
        damaged: ("damaged", f"{damaged.name} names no folder"),
    }
    assert _swept(tmp_path) == {gone.name, damaged.name}
    assert _swept(tmp_path, older_than=2) == {keys[0]}
    assert done.exists()
    assert _swept(tmp_path, phase="runs") == {done.name}


def test_what_vanishes_while_it_is_listed_is_gone(tmp_path, keys, monkeypatch):
    work = tmp_path / "clients" / f"{keys[1]}.work"
    work.mkdir()

    class Vanishing:
        def fullmatch(self, text):
            for path in (work, tmp_path / "clients" / keys[1]):
                shutil.rmtree(path, ignore_errors=True)
            return KEY.fullmatch(text)

    monkeypatch.setattr("oneshot_fl.inventory.KEY", Vanishing())
    found = [one for one in holdings(tmp_path) if not one.is_lock]
    assert {one.path.name: one.kind for one in found} == {keys[0]: "artifact", keys[2]: "artifact"}


@pytest.mark.parametrize("look", [holdings, partial(_swept, dry_run=True)])
def test_a_store_is_looked_at_while_runs_write_to_it(tmp_path, look):
    store, over = Store(tmp_path, note=lambda _: None), threading.Event()

    def make(work):
        for number in range(20):
            (work / f"{number}.pt").touch()
        return Artifact({}, {})

    def write():
        while not over.is_set():
            made = store.get_or_make("clients", {"a": 0}, make)
            shutil.rmtree(tmp_path / "clients" / made.key, ignore_errors=True)

    (tmp_path / "clients").mkdir()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        deadline = time.monotonic() + 1
        try:
            while time.monotonic() < deadline:
                look(tmp_path)
        finally:
            over.set()
        writing.result()


def test_what_its_maker_removes_at_the_same_time_is_removed(tmp_path, keys, monkeypatch):
    work = tmp_path / "clients" / f"{keys[1]}.work"
    work.mkdir()

    def removed_by_both(path):
        remove(path)
        path.lstat()

    monkeypatch.setattr("oneshot_fl.inventory.remove", removed_by_both)
    assert _swept(tmp_path) == {work.name}
    assert not work.exists()


def test_mistakes_are_named(tmp_path, keys):
    with pytest.raises(OneshotError, match=r"--phase stratify: .* choose from clients, distill"):
        _swept(tmp_path, phase="stratify")
    with pytest.raises(OneshotError, match="there is no such folder"):
        holdings(tmp_path / "nowhere")


@pytest.mark.parametrize("phase", [None, "images"])
@pytest.mark.parametrize("place", ["notes.txt", "pictures/0.png", "a/b/c.png"])
def test_a_folder_of_other_things_is_no_store(tmp_path, phase, place):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).touch()
    with pytest.raises(OneshotError, match=f"^store={tmp_path}: the folder holds no store; name one"):
        _swept(tmp_path, phase=phase)
    assert (tmp_path / place).exists()


def test_a_store_that_is_empty_is_one(tmp_path, keys):
    for phase in ("clients", "distill"):
        remove(tmp_path / phase)
        (tmp_path / phase).mkdir()
    (tmp_path / LEASED).touch()
    assert _swept(tmp_path) == set()
    with pytest.raises(
        OneshotError, match=f"^--phase distill: store={tmp_path} holds nothing of it, nor of any other$"
    ):
        _swept(tmp_path, phase="distill")


def test_what_an_artifact_is_known_by():
    inputs = {
        "method": {"name": "dense", "source": {"name": "generator"}},
        "models": [{"name": "cnn2"}, {"name": "lenet5"}, {"name": "cnn2"}],
        "generator": {"_target_": "oneshot_fl.models.generators.ConvGenerator"},
        "client": 0,
        "code": "abc",
    }
    assert described(inputs) == "method=dense models=cnn2+lenet5 generator=ConvGenerator client=0"
    assert described({}) == ""


@pytest.mark.parametrize(
    ("bytes", "said"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_340_000, "2.3 MB"), (5 * 10**12, "5.0 TB")]
)
def test_sizes(tmp_path, bytes, said):
    assert size([Holding(tmp_path, "artifact", bytes, 0.0, "")]) == said
