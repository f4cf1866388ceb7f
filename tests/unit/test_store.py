import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from oneshot_fl.artifacts import (
    Artifact,
    DamagedError,
    _checksum,
    read_artifact,
    save_tensors,
    write_work,
)
from oneshot_fl.errors import OneshotError
from oneshot_fl.ledger import Cost
from oneshot_fl.locks import holder
from oneshot_fl.store import HOLDER, WORK, Store, Wanted, open_store
from tests.damage import become, flip


def _made(value: float = 1.0) -> Artifact:
    return Artifact({"w": torch.full((2,), value)}, {"note": "made"})


def test_made_once_and_loaded_with_tensors_facts_key_and_cost(tmp_path):
    store, calls = Store(tmp_path), []

    def make(work):
        calls.append(work)
        time.sleep(0.01)
        return replace(_made(), cost=Cost(macs=7))

    first, second = (store.get_or_make("clients", {"a": 1}, make) for _ in range(2))
    assert len(calls) == 1
    assert torch.equal(second.tensors["w"], torch.ones(2))
    assert second.facts == {"note": "made"}
    assert (first.key, first.cost) == (second.key, second.cost)
    assert (first.cost.seconds >= 0.01, first.cost.macs) == (True, 7)


def test_inputs_phase_and_context_all_enter_the_key(tmp_path):
    stores = [Store(tmp_path), Store(tmp_path, {"device": "cuda"})]
    keys = {
        store.get_or_make(phase, {"a": value}, lambda _: _made()).key
        for store in stores
        for phase in ("clients", "distill")
        for value in (1, 2)
    }
    assert len(keys) == 8


def test_a_failed_making_leaves_its_work_folder_and_no_artifact(tmp_path):
    store = Store(tmp_path)

    def half(work):
        (work / "checkpoint").write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        store.get_or_make("distill", {}, half)

    def rest(work):
        assert (work / "checkpoint").read_text() == "half"
        return _made()

    artifact = store.get_or_make("distill", {}, rest)
    assert sorted(path.name for path in (tmp_path / "distill").iterdir()) == [artifact.key, f"{artifact.key}.lock"]


def test_two_threads_that_want_the_same_make_it_once(tmp_path):
    made = []

    def make(_):
        time.sleep(0.2)
        made.append(1)
        return _made()

    threads = [threading.Thread(target=Store(tmp_path).get_or_make, args=("clients", {}, make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def _edit(folder: Path, **changes: object) -> None:
    """Change the manifest as somebody would who wants its checksum to fit."""
    manifest = json.loads((folder / "manifest.json").read_text()) | changes
    manifest = {name: value for name, value in manifest.items() if value is not ...}
    manifest["checksum"] = _checksum({name: value for name, value in manifest.items() if name != "checksum"})
    (folder / "manifest.json").write_text(json.dumps(manifest))


DAMAGE: dict[str, Callable[[Path], object]] = {
    **{
        f"{name} {what}": partial(lambda name, change, folder: change(folder / name), name, change)
        for name in ("tensors.safetensors", "manifest.json")
        for what, change in {
            "is missing": Path.unlink,
            "is empty": lambda path: path.write_bytes(b""),
            "is cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
            "is longer": lambda path: path.write_bytes(path.read_bytes() + b"}"),
            "is other text": lambda path: path.write_text("[1, 2]"),
            "is null": lambda path: path.write_text("null"),
            "is noise": lambda path: path.write_bytes(bytes(range(128, 256))),
            "is nested deeply": lambda path: path.write_text("[" * 100_000),
            "is a folder": lambda path: become(path, Path.mkdir),
            "is a pipe": lambda path: become(path, os.mkfifo),
            "is a link to nowhere": lambda path: become(path, lambda path: path.symlink_to("nowhere")),
            "is a link to itself": lambda path: become(path, lambda path: path.symlink_to(path)),
        }.items()
    },
    "has no files": lambda folder: [path.unlink() for path in folder.iterdir()],
    "is a file": lambda folder: become(folder, Path.touch),
    "is a link to nowhere": lambda folder: become(folder, lambda path: path.symlink_to("nowhere")),
    "is a link to itself": lambda folder: become(folder, lambda path: path.symlink_to(path)),
    "is a link to another": lambda folder: become(folder, lambda path: path.symlink_to(_other(folder))),
    "is swapped": lambda folder: [become(folder, lambda path: _other(path).rename(path))],
    "has another's tensors": lambda folder: shutil.copy(_other(folder) / "tensors.safetensors", folder),
    "has another's manifest": lambda folder: shutil.copy(_other(folder) / "manifest.json", folder),
    "was made from something else": lambda folder: _edit(folder, inputs={"a": 3}),
    "lacks its inputs": lambda folder: _edit(folder, inputs=...),
    "lacks its tensors' checksum": lambda folder: _edit(folder, sha256=...),
    "lacks its checksum": lambda folder: (folder / "manifest.json").write_text('{"facts": {}}'),
}


def _other(folder: Path) -> Path:
    return next(path for path in folder.parent.iterdir() if len(path.name) == 20 and path.name != folder.name)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_artifact_is_set_aside_and_made_again(tmp_path, damage):
    notes: list[str] = []
    store = Store(tmp_path, note=notes.append)
    store.get_or_make("clients", {"a": 2}, lambda _: _made(2.0))
    folder = tmp_path / "clients" / store.get_or_make("clients", {"a": 1}, lambda _: _made()).key
    DAMAGE[damage](folder)
    again = store.get_or_make("clients", {"a": 1}, lambda _: _made(5.0))
    assert again.tensors["w"].tolist() == [5.0, 5.0]
    assert not again.from_store
    assert os.path.lexists(folder.with_suffix(".damaged"))
    assert len(notes) == 1
    assert str(folder) in notes[0]
    assert "\n" not in notes[0]
    assert store.get_or_make("clients", {"a": 1}, lambda _: _made(6.0)).tensors["w"].tolist() == [5.0, 5.0]


def test_no_bit_of_an_artifact_can_flip_unnoticed(tmp_path):
    store = Store(tmp_path, {"device": "cpu"}, note=lambda _: None)
    inputs = {"rate": 0.1, "name": "cnn2"}
    made = store.get_or_make("clients", inputs, lambda _: Artifact({"w": torch.arange(3.0)}, {"losses": [0.5, 0.25]}))
    folder = tmp_path / "clients" / made.key
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    remade = 0
    for name, content in whole.items():
        for bit in range(0, 8 * len(content), 3):
            flip(folder / name, bit)
            try:
                found = read_artifact(folder)
            except DamagedError:
                remade += 1
            else:  # a space between two values, or a letter of \\u notation: what is read is the same
                assert (found.facts, found.cost) == (made.facts, made.cost)
                assert torch.equal(found.tensors["w"], made.tensors["w"])
            (folder / name).write_bytes(content)
    assert remade > 0.9 * 8 * sum(map(len, whole.values())) / 3


def test_what_cannot_be_read_is_no_damage(tmp_path, monkeypatch):
    store = Store(tmp_path)
    folder = tmp_path / "clients" / store.get_or_make("clients", {}, lambda _: _made()).key
    monkeypatch.setattr(Path, "read_bytes", _raises(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(OneshotError, match=f"{folder} cannot be read: Permission denied"):
        store.get_or_make("clients", {}, lambda _: _made())
    assert folder.is_dir()


def test_what_was_loaded_says_so_and_equals_what_was_made(tmp_path):
    facts = {"counts": {3: 1, 20: 2}, "shape": (1, 2), "loss": 0.1}
    first, second = (Store(tmp_path).get_or_make("clients", {}, lambda _: Artifact({}, facts)) for _ in range(2))
    assert (first.from_store, second.from_store) == (False, True)
    assert first.facts == second.facts == {"counts": {"3": 1, "20": 2}, "shape": [1, 2], "loss": 0.1}


def test_the_work_folder_is_removed_wherever_the_artifact_exists(tmp_path):
    store = Store(tmp_path)
    key = store.get_or_make("clients", {}, lambda _: _made()).key
    work = tmp_path / "clients" / f"{key}.work"
    work.mkdir()
    (work / "rounds.pt").write_text("left by a process that was killed in between")
    store.get_or_make("clients", {}, lambda _: _made())
    assert not work.exists()


def test_what_is_not_finite_is_never_stored(tmp_path):
    diverged = Artifact({"fine": torch.ones(2), "w": torch.tensor([1.0, float("nan")])}, {})
    with pytest.raises(OneshotError, match="clients: tensor w holds a value that is not finite"):
        Store(tmp_path).get_or_make("clients", {}, lambda _: diverged)
    assert not list(tmp_path.glob("clients/*.new*")) + list(tmp_path.glob("clients/*/manifest.json"))


def test_who_waits_is_told_for_what(tmp_path):
    told: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        assert go_on.wait(30)
        return _made()

    def tell(text):
        told.append(text)
        go_on.set()

    other = threading.Thread(target=Store(tmp_path).get_or_make, args=("clients", {}, slow))
    other.start()
    assert begun.wait(30)
    found = Store(tmp_path).get_or_make("clients", {}, lambda _: _made(2.0), waiting=tell)
    other.join()
    assert found.from_store
    (line,) = told
    assert f"{holder()} is making clients/{found.key}" in line
    assert str(tmp_path) in line


@pytest.mark.parametrize("leased", [False, True])
def test_who_needs_the_same_shares_the_work_instead_of_waiting(tmp_path, leased):
    """Each makes the one only after the other has made the other: in a convoy nobody would."""
    made = {name: threading.Event() for name in "ab"}
    makers: dict[str, str] = {}

    def wants(me, names):
        def make(name):
            makers[name] = me
            if name == names[0]:
                started[me].set()
                assert started["one" if me == "two" else "two"].wait(30)
            made[name].set()
            return Artifact({}, {"name": name})

        wanted = [Wanted("clients", {"name": name}, lambda _, name=name: make(name)) for name in names]
        found[me] = Store(tmp_path, leased=leased).get_or_make_all(wanted)

    found: dict[str, list[Artifact]] = {}
    started = {"one": threading.Event(), "two": threading.Event()}
    threads = [threading.Thread(target=wants, args=pair) for pair in (("one", "ab"), ("two", "ba"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert makers == {"a": "one", "b": "two"}
    assert [artifact.facts["name"] for artifact in found["one"]] == ["a", "b"]
    assert [artifact.facts["name"] for artifact in found["two"]] == ["b", "a"]
    assert [artifact.from_store for artifact in found["two"]] == [False, True]


def test_what_another_process_is_making_is_left_for_last(tmp_path):
    """Both begin with the same, and whoever comes second goes on with the rest."""
    going_on, order = threading.Event(), []

    def make(name):
        order.append(name)
        if name == "a":
            assert going_on.wait(30)
        if name == "b":
            going_on.set()
        return _made()

    wanted = [Wanted("clients", {"name": name}, lambda _, name=name: make(name)) for name in "ab"]
    first = threading.Thread(target=Store(tmp_path).get_or_make_all, args=(wanted[:1],))
    first.start()
    while not order:
        time.sleep(0.01)
    done: list[int] = []
    Store(tmp_path).get_or_make_all(wanted, done=lambda k, _: done.append(k))
    first.join(30)
    assert order == ["a", "b"]
    assert done == [1, 0]


def test_one_that_is_being_made_is_not_waited_for_where_nobody_wants_that(tmp_path):
    store = Store(tmp_path)
    mine = Wanted("clients", {}, lambda _: _made())
    inner: list[Artifact | None] = []

    def make(_):
        other = threading.Thread(target=lambda: inner.append(Store(tmp_path).get_or_make_if_free(mine)))
        other.start()
        other.join(30)
        return _made()

    assert not store.has(mine)
    store.get_or_make("clients", {}, make)
    assert inner == [None]
    assert store.has(mine)
    assert store.get_or_make_if_free(mine) is not None


def test_who_lost_its_lease_meanwhile_keeps_what_the_other_has_made(tmp_path):
    """As after a night in sleep mode: the lock file is gone, and another process has come and gone."""
    store = Store(tmp_path, leased=True)

    def slow(_):
        next(tmp_path.rglob("*.lease")).unlink()
        Store(tmp_path, leased=True).get_or_make("clients", {}, lambda _: _made())
        return _made()

    found = store.get_or_make("clients", {}, slow)
    assert torch.equal(found.tensors["w"], torch.ones(2))
    assert [path.name for path in (tmp_path / "clients").iterdir()] == [found.key]


def test_what_another_has_made_between_a_last_look_and_the_move_is_kept(tmp_path, monkeypatch):
    replace = os.replace

    def late(source, target):
        if Path(target).name == key:
            shutil.copytree(source, target)
        replace(source, target)

    key = Store(tmp_path / "other").get_or_make("clients", {}, lambda _: _made()).key
    monkeypatch.setattr("oneshot_fl.store.os.replace", late)
    found = Store(tmp_path).get_or_make("clients", {}, lambda _: _made())
    assert (found.key, torch.equal(found.tensors["w"], torch.ones(2))) == (key, True)
    assert key in [path.name for path in (tmp_path / "clients").iterdir()]
    assert not [*(tmp_path / "clients").glob("*.new*")]


@pytest.mark.parametrize("intact", [True, False])
def test_who_lost_its_work_folder_with_its_lease_takes_what_the_other_has_made(tmp_path, intact):
    store = Store(tmp_path, leased=True)

    def stopped(work):
        next(tmp_path.rglob("*.lease")).unlink()
        other = Store(tmp_path, leased=True).get_or_make("clients", {}, lambda _: _made(2.0))
        if not intact:
            (tmp_path / "clients" / other.key / "manifest.json").unlink()
        write_work(work / "part-2.pt", [1])
        return _made()

    wanted = Wanted("clients", {}, stopped)
    if not intact:
        with pytest.raises(OneshotError, match=r"part-2\.pt: cannot be written"):
            store.get_or_make_all([wanted])
    else:
        (found,) = store.get_or_make_all([wanted])
        assert (found.tensors["w"].tolist(), found.from_store) == ([2.0, 2.0], True)
        assert [path.name for path in (tmp_path / "clients").iterdir()] == [found.key]


def test_a_store_that_comes_to_need_leases_makes_what_failed_before(tmp_path):
    def fail(_):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        Store(tmp_path).get_or_make("clients", {}, fail)
    assert Store(tmp_path, leased=True).get_or_make_if_free(Wanted("clients", {}, lambda _: _made())) is not None


@pytest.fixture
def group_umask():
    before = os.umask(0o002)
    yield
    os.umask(before)


def test_files_have_the_mode_that_the_umask_gives(tmp_path, group_umask):
    kept: list[int] = []

    def make(work):
        write_work(work / "rounds.pt", [1])
        kept.append((work / "rounds.pt").stat().st_mode & 0o777)
        return _made()

    Store(tmp_path / "store").get_or_make("clients", {}, make)
    save_tensors({"w": torch.ones(1)}, tmp_path / "server.safetensors")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    key = next(name for name in modes if len(name) == 20)
    files = ("tensors.safetensors", "manifest.json", f"{key}.lock", "server.safetensors")
    assert modes == {**dict.fromkeys(("store", "clients", key), 0o775), **dict.fromkeys(files, 0o664)}
    assert kept == [0o664]


def _raises(error: BaseException) -> Callable[..., object]:
    def fail(*_, **__):
        raise error

    return fail


FULL = OSError(errno.ENOSPC, "No space left on device")
FULL_FOR_SAFETENSORS = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("pathlib.Path.mkdir", FULL),
        ("pathlib.Path.write_bytes", FULL),
        ("oneshot_fl.artifacts.save_file", FULL_FOR_SAFETENSORS),
        ("oneshot_fl.artifacts.save_file", FULL),
        ("oneshot_fl.disk.os.fsync", FULL),
        ("oneshot_fl.store.os.replace", FULL),
        ("filelock.FileLock.acquire", OSError(errno.ENOLCK, "No locks available")),
    ],
)
def test_a_full_disk_is_one_line_and_leaves_nothing_half(tmp_path, where, error):
    store = Store(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, _raises(error))
        with pytest.raises(OneshotError, match=f"{tmp_path / 'store'}.*(No space left|No locks)") as raised:
            store.get_or_make("clients", {}, lambda _: _made())
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.rglob("*.new*"))
    assert not list(tmp_path.rglob("manifest.json"))
    assert store.get_or_make("clients", {}, lambda _: _made()).tensors["w"].tolist() == [1.0, 1.0]


def test_a_store_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OneshotError, match=f"store={tmp_path}/file/store: cannot be written .Not a directory."):
        open_store(tmp_path / "file" / "store", {})
    assert open_store(tmp_path / "a" / "b", {"x": 1}).root.is_dir()
    assert not list((tmp_path / "a" / "b").iterdir())


def test_the_manifest_tells_what_the_artifact_was_made_from(tmp_path):
    store = Store(tmp_path, {"device": "cpu"})
    key = store.get_or_make("clients", {"epochs": 3}, lambda _: _made()).key
    manifest = json.loads((tmp_path / "clients" / key / "manifest.json").read_text())
    assert manifest["inputs"] == {"epochs": 3}
    assert manifest["context"] == {"device": "cpu"}


@pytest.mark.parametrize("ended", [False, True])
def test_who_is_waited_for_may_end_while_it_is_looked_up(tmp_path, monkeypatch, ended):
    store = Store(tmp_path)
    place = store._place(Wanted("clients", {}, lambda _: Artifact({}, {})))
    work = place.final.with_suffix(WORK)
    work.mkdir(parents=True)
    told = work / HOLDER
    told.write_text("process 7")
    if ended:  # right after it was seen
        told.unlink()
        monkeypatch.setattr(Path, "is_file", lambda _: True)
    assert store._by_another(place).startswith("another process is" if ended else "process 7 is")
