"""Finished runs are found again, and only they."""

import errno
import json
import os
import shutil
import time

import pytest

from oneshot_fl.code import _seen
from oneshot_fl.config.compose import reading_also
from oneshot_fl.errors import OneshotError
from oneshot_fl.job import remembered, take_over
from oneshot_fl.reporting.finished import Finished, adopt, finished, hashes_of


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    (folder / "image.png").write_bytes(b"pixels")
    return tmp_path / "data"


def _config(root, **more):
    data = {"name": "image_folder", "_target_": "oneshot_fl.data.image_folder.image_folder", "root": str(root)}
    proxy = {"name": "noise", "_target_": "oneshot_fl.data.proxy.noise"}
    made = {"data": data, "proxy": proxy, "partition": {"name": "iid", "_target_": "oneshot_fl.data.partition.iid"}}
    trainer = {"accelerator": "cpu", "precision": "32-true", "jobs_per_gpu": 1}
    return {**made, "seed": 0, "logger": {}, "trainer": trainer, "store": "store", **more}


@pytest.fixture
def code(monkeypatch):
    """Say what digest the code has."""
    return lambda digest: monkeypatch.setattr("oneshot_fl.reporting.finished.code_of", lambda *_: digest)


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


def test_a_file_whose_name_no_text_has_counts_too(root, code):
    code("the code")
    keys = [_key(root)]
    with open(os.fsencode(root / "train") + b"/Gr\xf6\xdfe.png", "wb") as file:  # as latin-1 systems pack it
        file.write(b"pixels")
    assert len({*keys, _key(root)}) == 2


def _write_as_old(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    os.utime(file, ns=(0, 0))


def test_folders_that_were_renamed_into_each_other_count(root, tmp_path):
    for name in ("cat", "dog"):
        _write_as_old(root / "train" / name / "0.png", name.encode())
    key = _key(root)
    assert _key(root) == key
    for old, new in (("cat", "between"), ("dog", "cat"), ("between", "dog")):
        (root / "train" / old).rename(root / "train" / new)
    assert _key(root) != key


def test_a_file_that_was_written_over_and_dated_back_counts(root):
    image = root / "train" / "image.png"
    _write_as_old(image, b"pixels")
    key = _key(root)
    time.sleep(0.02)  # the file system's clock ticks every few milliseconds
    _write_as_old(image, b"PIXELS")
    assert _key(root) != key


def test_kinds_of_clients_are_assigned_and_sources_draw_in_their_order(root):
    kinds = {"classifier": 1, "cvae": 1}
    keys = {_key(root, clients={"kinds": dict(order)}) for order in (kinds.items(), reversed(kinds.items()))}
    assert len(keys) == 2


def test_where_decoded_images_are_kept_makes_no_other_run(root):
    keys = set()
    for store in ("~/store", "/home/me/store"):
        config = _config(root, store=store)
        config["data"]["cache"] = store
        keys.add(finished(config).key)
    assert len(keys) == 1


@pytest.mark.parametrize(("logger", "keys"), [({}, 1), ({"csv": {}}, 1), ({"csv": {}, "wandb": {}}, 2)])
def test_a_run_of_another_study_is_missing_in_a_dashboard_alone(root, logger, keys):
    assert len({_key(root, logger=logger, study=study) for study in "ab"}) == keys


@pytest.mark.parametrize(("logger", "keys"), [("WandbLogger", 3), ("CSVLogger", 1)])
def test_where_a_dashboard_shows_a_run_counts_and_else_nothing_of_it(root, monkeypatch, logger, keys):
    found = set()
    for name, value in [("WANDB_MODE", "disabled"), ("WANDB_MODE", "online"), ("WANDB_ENTITY", "us")]:
        monkeypatch.setenv(name, value)
        found.add(_key(root, logger={"its": {"_target_": f"lightning.pytorch.loggers.{logger}"}}))
    assert len(found) == keys


def test_data_of_a_users_function_may_come_from_anywhere(root, tmp_path):
    config = _config(root)
    config["data"]["_target_"] = "my_data.load"
    assert finished(config) is None


def test_a_split_of_a_users_function_may_come_from_anywhere(root):
    assert finished(_config(root, partition={"name": "mine", "_target_": "my_split.from_file"})) is None
    assert finished(_config(root)) is not None


def test_files_that_a_users_part_names_count(root, tmp_path, monkeypatch):
    (tmp_path / "my_net.py").write_text("def net(spec, file): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    weights, keys = tmp_path / "weights.bin", set()
    for content in (b"1", b"2"):
        weights.write_bytes(content)
        keys.add(_key(root, model={"name": "mine", "_target_": "my_net.net", "file": str(weights)}))
    assert len(keys) == 2


def test_files_that_are_only_named_count(root, tmp_path):
    own = tmp_path / "own" / "model"
    own.mkdir(parents=True)
    mine = own / "mine.yaml"
    with reading_also(tmp_path / "own"):
        mine.write_text("name: mine\n_target_: oneshot_fl.models.zoo.resnet\ndepth: 18\n")
        told = (
            {"server_model": "mine"},
            {"model": {"names": ["cnn2", "mine"]}},
            {"evaluate": {"privacy": {"model": "mine"}}},
        )
        before = [_key(root, **more) for more in told]
        alone = _key(root)
        mine.write_text("name: mine\n_target_: oneshot_fl.models.zoo.resnet\ndepth: 34\n")
        assert not set(before) & {_key(root, **more) for more in told}
        assert alone == _key(root)


def test_the_code_of_what_is_only_named_counts(root, tmp_path, monkeypatch):
    own = tmp_path / "own" / "model"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("name: mine\n# _target_: no.such.module\n_target_: mine_code.Net\n")
    code = tmp_path / "code" / "mine_code.py"
    code.parent.mkdir()
    monkeypatch.syspath_prepend(str(code.parent))
    keys = []
    with reading_also(tmp_path / "own"):
        for width in (8, 16):
            code.write_text(f"class Net:\n    width = {width}\n")
            _seen.clear()
            keys.append(_key(root, server_model="mine"))
    assert len(set(keys)) == 2


def test_another_data_set_of_a_users_function_may_come_from_anywhere_too(root, tmp_path):
    own = tmp_path / "own" / "data"
    own.mkdir(parents=True)
    (own / "theirs.yaml").write_text("name: theirs\n_target_: their_data.load\n")
    config = _config(root, proxy={"name": "other", "data": "theirs", "fraction": 1.0})
    with reading_also(tmp_path / "own"):
        assert finished(config) is None


def test_what_another_data_set_takes_from_its_defaults_counts(root, tmp_path):
    own = tmp_path / "own" / "data"
    own.mkdir(parents=True)
    (own / "theirs.yaml").write_text("defaults: [base]\nname: theirs\n")
    with reading_also(tmp_path / "own"):
        keys = []
        for grey in (250, 5, 5):
            (own / "base.yaml").write_text(f"_target_: oneshot_fl.data.datasets.digits\nmean: [{grey}]\nstd: [1]\n")
            keys.append(_key(root, proxy={"name": "other", "data": "theirs", "root": "x"}, store=f"store/{len(keys)}"))
        assert keys[0] != keys[1] == keys[2]
        (own / "base.yaml").write_text("_target_: their_data.load\n")
        assert finished(_config(root, proxy={"name": "other", "data": "theirs", "root": "x"})) is None


def test_another_data_set_that_cannot_be_composed_is_for_the_run_to_say(root, tmp_path):
    own = tmp_path / "own" / "data"
    own.mkdir(parents=True)
    (own / "theirs.yaml").write_text("defaults: [no_such_base]\nname: theirs\n")
    config = _config(root, proxy={"name": "other", "data": "theirs", "root": "x"})
    with reading_also(tmp_path / "own"):
        with pytest.raises(OneshotError, match=r"^proxy\.data=theirs: .*no_such_base"):
            finished(config)
        assert remembered(config) is None


def test_what_a_file_that_is_only_named_reads_from_the_environment_counts(root, tmp_path, monkeypatch):
    own = tmp_path / "own" / "model"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("name: mine\n_target_: oneshot_fl.models.zoo.resnet\ndepth: ${oc.env:DEPTH}\n")
    keys = []
    with reading_also(tmp_path / "own"):
        for depth in ("18", "34", "34"):
            monkeypatch.setenv("DEPTH", depth)
            keys.append(_key(root, server_model="mine"))
    assert keys[0] != keys[1] == keys[2]


def test_weights_that_a_file_names_which_is_only_named_count(root, tmp_path, monkeypatch):
    (tmp_path / "my_net.py").write_text("def net(spec, file): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    own, weights = tmp_path / "own" / "model", tmp_path / "weights.bin"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(f"name: mine\n_target_: my_net.net\nfile: {weights}\n")
    keys = set()
    with reading_also(tmp_path / "own"):
        for content in (b"1", b"2"):
            weights.write_bytes(content)
            keys.add(_key(root, server_model="mine"))
    assert len(keys) == 2


def test_files_behind_links_count_and_a_link_back_up_ends(root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "image.png").write_bytes(b"pixels")
    (root / "test").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(root)
    key = _key(root)
    (elsewhere / "another.png").write_bytes(b"more")
    assert _key(root) != key


def test_files_of_a_root_in_the_users_home_count(root, monkeypatch):
    monkeypatch.setenv("HOME", str(root.parent))
    key = _key("~/data")
    (root / "train" / "new.png").write_bytes(b"more")
    assert _key("~/data") != key


LEFT = ("summary.json", "config.yaml", "server.safetensors")
SUMMARY = {"method": "dense", "server": {"accuracy_last": 0.5}}


def _finish(folder, key, status="done", arithmetic="cpu.32-true", hashed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.yaml", "server.safetensors"):
        (folder / name).write_text("written whole")
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    trace = {"key": key, "status": status, "arithmetic": arithmetic, **(hashes_of(folder) if hashed else {})}
    (folder / "run.json").write_text(json.dumps(trace))
    (folder / "metrics.csv").write_text("metric,step,value\n")


def test_a_finished_run_is_found_and_its_files_copied(tmp_path):
    place, done = Finished(tmp_path / "store", "k", "cuda.32-true"), tmp_path / "done"
    assert place.find(tmp_path / "elsewhere") is None
    _finish(done, "k", arithmetic="cuda.32-true")
    place.remember(done)
    assert place.find(tmp_path / "elsewhere") == done
    of_this_machine = Finished(tmp_path / "store", "k", "cpu.32-true")
    assert of_this_machine.find(tmp_path / "elsewhere") is None  # it was computed otherwise
    assert of_this_machine.find_of_any_machine(tmp_path / "own") == done
    assert adopt(done, tmp_path / "again") == SUMMARY
    assert {path.name for path in (tmp_path / "again").iterdir()} == {*LEFT, "metrics.csv"}
    assert adopt(done, done) == SUMMARY


def test_a_run_whose_folder_was_renamed_is_found_there(tmp_path):
    place, done = Finished(tmp_path / "store", "k", "cpu.32-true"), tmp_path / "done"
    _finish(done, "k")
    place.remember(done)
    done.rename(tmp_path / "renamed")
    assert place.find(tmp_path / "renamed") == tmp_path / "renamed"
    assert place.find(tmp_path / "elsewhere") is None


def test_a_run_whose_logger_is_a_users_own_counts_only_where_it_lies(root, tmp_path, code):
    code("the code")
    logger = {"csv": {"_target_": "lightning.pytorch.loggers.CSVLogger"}, "none": {}}
    assert finished(_config(root, logger=logger)).copied
    for target in ("my_logger.JsonLines", "lightnings.Logger"):
        assert not finished(_config(root, logger={**logger, "mine": {"_target_": target}})).copied
    place, done = Finished(tmp_path / "store", "k", "cpu.32-true", copied=False), tmp_path / "done"
    _finish(done, "k")
    place.remember(done)
    for find in (place.find, place.find_of_any_machine):
        assert (find(done), find(tmp_path / "again")) == (done, None)


def test_figures_of_another_run_do_not_stay_beside_a_copied_one(tmp_path):
    done, own = tmp_path / "done", tmp_path / "own"
    for folder, figure in ((done, "partition.png"), (own, "synthetic.png")):
        _finish(folder, "k")
        (folder / figure).touch()
    adopt(own, own)
    assert (own / "synthetic.png").exists()
    adopt(done, own)
    assert sorted(path.name for path in own.glob("*.png")) == ["partition.png"]


def test_metrics_of_another_run_do_not_stay_beside_a_copied_one_that_has_none(tmp_path):
    done, own = tmp_path / "done", tmp_path / "own"
    for folder in (done, own):
        _finish(folder, "k")
    (done / "metrics.csv").unlink()
    adopt(own, own)
    assert (own / "metrics.csv").exists()
    adopt(done, own)
    assert not (own / "metrics.csv").exists()


def test_events_of_another_run_do_not_stay_beside_a_copied_one(tmp_path):
    done, own = tmp_path / "done", tmp_path / "own"
    for folder in (done, own):
        _finish(folder, "k")
        (folder / "tensorboard").mkdir()
        (folder / "tensorboard" / f"events.out.tfevents.{folder.name}").touch()
    adopt(done, own)
    assert [path.name for path in (own / "tensorboard").iterdir()] == ["events.out.tfevents.done"]


def test_an_export_of_another_model_is_told_of(tmp_path, capsys):
    done, own = tmp_path / "done", tmp_path / "own"
    for folder in (done, own):
        _finish(folder, "k")
    (own / "export").mkdir()
    (own / "export" / "model.onnx").touch()
    adopt(own, own)
    assert capsys.readouterr().err == ""
    adopt(done, own)
    assert capsys.readouterr().err == f"oneshot_fl: {own}/export: is of the model before this one; export it anew\n"


def test_a_folder_that_another_arithmetic_was_run_in_since_is_not_found(tmp_path):
    first, done = Finished(tmp_path / "store", "k", "cuda.32-true"), tmp_path / "done"
    _finish(done, "k", arithmetic="cuda.32-true")
    first.remember(done)
    _finish(done, "k", arithmetic="cpu.bf16-mixed")
    assert first.find(tmp_path / "elsewhere") is None
    assert first.find_of_any_machine(tmp_path / "own") == done


def test_what_was_computed_elsewhere_does_not_replace_what_a_job_found_itself(tmp_path):
    laptop, own = Finished(tmp_path / "store", "k", "cpu.bf16-mixed"), tmp_path / "own"
    _finish(tmp_path / "laptop", "k", arithmetic="cpu.bf16-mixed")
    laptop.remember(tmp_path / "laptop")
    _finish(own, "k", arithmetic="cuda.32-true")
    (own / "metrics.csv").write_text("computed on CUDA")
    take_over(laptop.find_of_any_machine(own), {}, own)
    assert (own / "metrics.csv").read_text() == "computed on CUDA"
    _finish(own, "k", status="failed")
    assert laptop.find_of_any_machine(own) == tmp_path / "laptop"


@pytest.mark.parametrize("damage", ["key", "status", "summary", "no summary", "trace", "hashes", "pointer"])
def test_what_is_not_that_run_any_more_is_not_found(tmp_path, damage):
    place, done = Finished(tmp_path / "store", "k", "cpu.32-true"), tmp_path / "done"
    _finish(done, "other" if damage == "key" else "k", "running" if damage == "status" else "done")
    place.remember(done)
    if damage == "summary":
        (done / "summary.json").write_text('{"method"')
    elif damage == "no summary":
        _finish(done, "k", hashed=False)
        (done / "summary.json").write_text("{}")
    elif damage == "trace":
        (done / "run.json").unlink()
    elif damage == "hashes":
        (done / "run.json").write_text(json.dumps(json.loads((done / "run.json").read_text()) | {"sha256": 3}))
    elif damage == "pointer":
        (tmp_path / "store" / "runs" / "k.cpu.32-true.json").write_text("[]")
    assert place.find(tmp_path / "elsewhere") is None


def test_folders_of_a_run_are_copied_but_not_what_is_another_runs(tmp_path):
    done, inside = tmp_path / "done", tmp_path / "done" / "sweep" / "0"
    _finish(done, "k")
    for folder in ("tensorboard/deep", ".hydra", "wandb/run-1"):
        (done / folder).mkdir(parents=True)
        (done / folder / "file").write_text(folder)
    _finish(inside, "other")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "image.png").touch()
    (done / "data").symlink_to(tmp_path / "data")
    for copy in (tmp_path / "copy", done / "copy"):
        take_over(done, {}, copy)
        files = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
        assert files == {*LEFT, "metrics.csv", "run.json", "tensorboard/deep/file"}


def test_a_users_own_files_are_neither_copied_nor_written_over(tmp_path):
    done, own = tmp_path / "done", tmp_path / "own"
    _finish(done, "k")
    (done / "config.yaml").write_text("logger: {csv: {name: .}, events: {name: events}, odd: {name: ../done}}\n")
    for folder in ("mine", "events"):
        (done / folder).mkdir()
        (done / folder / "file").write_text(folder)
    own.mkdir()
    for folder in (done, own):
        (folder / "notes.txt").write_text(f"notes on {folder.name}")
    adopt(done, own)
    assert (own / "notes.txt").read_text() == "notes on own"
    files = {str(path.relative_to(own)) for path in own.rglob("*") if path.is_file()}
    assert files == {*LEFT, "metrics.csv", "notes.txt", "events/file"}


def test_a_copy_that_something_lies_in_the_way_of_is_one_line(tmp_path):
    _finish(tmp_path / "done", "k")
    (tmp_path / "copy" / "server.safetensors").mkdir(parents=True)
    with pytest.raises(OneshotError, match=r"copy: cannot be written \(Is a directory\)"):
        take_over(tmp_path / "done", {}, tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / "run.json").read_text())["status"] == "failed"
    (tmp_path / "file").touch()
    with pytest.raises(OneshotError, match=r"file: cannot be written"):
        take_over(tmp_path / "done", {}, tmp_path / "file")


def test_data_that_cannot_be_looked_at_is_for_the_run_to_say(root, monkeypatch):
    def fails(_):
        raise PermissionError(13, "Permission denied")

    assert remembered(_config(root)) is not None
    monkeypatch.setattr("oneshot_fl.reporting.finished._stamp", fails)
    assert remembered(_config(root)) is None


@pytest.mark.parametrize("hashed", [True, False])  # earlier versions' traces have no hashes
@pytest.mark.parametrize("name", LEFT)
def test_a_run_without_one_of_its_files_is_not_found(tmp_path, name, hashed):
    place, done = Finished(tmp_path / "store", "k", "cpu.32-true"), tmp_path / "done"
    _finish(done, "k", hashed=hashed)
    place.remember(done)
    assert place.find(tmp_path / "elsewhere") == done
    (done / name).unlink()
    assert place.find(tmp_path / "elsewhere") is None
    assert place.find_of_any_machine(done) is None
    (done / name).mkdir()
    assert place.find(tmp_path / "elsewhere") is None


@pytest.mark.parametrize("name", ["config.yaml", "server.safetensors"])
def test_a_run_whose_files_are_cut_off_is_not_found_nor_is_a_copy_of_it(tmp_path, name):
    place, done, copy = Finished(tmp_path / "store", "k", "cpu.32-true"), tmp_path / "done", tmp_path / "copy"
    _finish(done, "k")
    place.remember(done)
    take_over(place.find(tmp_path / "elsewhere"), {}, copy)
    place.remember(copy)
    assert place.find(tmp_path / "elsewhere") == copy
    (copy / name).write_text("written who")
    assert place.find(tmp_path / "elsewhere") is None


def test_a_run_whose_figures_were_changed_is_made_again_but_not_where_an_earlier_version_did_not_hash_them(tmp_path):
    place, done = Finished(tmp_path / "store", "k", "cpu.32-true"), tmp_path / "done"
    for hashed in (True, False):
        _finish(done, "k", hashed=hashed)
        assert place.find(done) == done
        (done / "summary.json").write_text(json.dumps(SUMMARY | {"server": {"accuracy_last": 0.99}}))
        assert place.find(done) == (None if hashed else done)


def test_a_store_that_knows_a_run_already_is_not_written(tmp_path, monkeypatch):
    place, done = Finished(tmp_path / "store", "k", "cpu.32-true"), tmp_path / "done"
    _finish(done, "k")
    place.remember(done)
    monkeypatch.setattr("oneshot_fl.reporting.finished.remember_run", None)
    place.remember(done)
    with pytest.raises(TypeError):
        place.remember(tmp_path / "another")


def test_a_copy_that_ends_in_the_middle_is_no_finished_run(tmp_path, monkeypatch):
    done, copied, copy = tmp_path / "done", [], shutil.copyfile
    _finish(done, "k")

    def full(source, target):
        if len(copied) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        copied.append(copy(source, target))

    monkeypatch.setattr("oneshot_fl.reporting.finished.shutil.copyfile", full)
    with pytest.raises(OneshotError, match="No space left"):
        adopt(done, tmp_path / "again")
    assert [path.name for path in copied] == ["config.yaml"]
