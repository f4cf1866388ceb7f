"""One aggregation from the command line to its report: exit codes, quarantine, resuming, another method."""

import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import oneshot_fl
from oneshot_fl import cli
from oneshot_fl.aggregation.run import _key, _left_as_it_was
from oneshot_fl.config.described import build, load
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.decode import Tones
from oneshot_fl.disk import write_atomically
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import read_model, write_model
from oneshot_fl.models.per_architecture import members_of
from oneshot_fl.process import Interrupted
from oneshot_fl.reporting.about import about
from oneshot_fl.sweeps.alone import alone_in
from tests.parts import SMALL
from tests.unit.data.image_files import write_image

HERE = ("trainer=cpu", "logger=none")
FEW = (
    *HERE,
    *("distill.rounds=2", "distill.batch_size=32", "recite.images=16", "recite.batch_size=8", "recite.steps=2"),
    *("method.source.dead_leaves.samples=32", "method.source.strokes.samples=32", "method.source.mixtures.samples=32"),
)


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Call `oneshot-fl aggregate` in this process: exit code and what it printed."""

    monkeypatch.setenv("COLUMNS", "1000")  # no path is broken between two lines

    def call(*words: str) -> tuple[int, str]:
        settings = HERE if "method=fedavg" in words else FEW
        monkeypatch.setattr(sys, "argv", ["oneshot-fl", "aggregate", *words, *settings, f"store={tmp_path}/store"])
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return call


@pytest.fixture
def uploads(write, folder):
    for name in ("one", "two", "three"):
        write(name)
    (folder / "bad.pt").write_bytes(b"x")
    return str(folder)


def test_uploads_become_a_model_that_describes_itself_and_a_report(uploads, call, tmp_path):
    code, printed = call(uploads, "--out", str(tmp_path / "out"))
    assert (code, "3 of 4 uploads used" in printed) == (0, True), printed
    file = read_model(tmp_path / "out" / "server.safetensors")
    assert (file.description.class_names, file.description.method) == (("a", "b", "c"), "fedchorus")
    assert load(file)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [one["name"] for one in report["quarantined"]] == ["bad.pt"]
    assert len(report["accepted"]) == 3
    assert {"changes_without_it", "says_most_often"} <= report["accepted"][0].keys()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["kind"], summary["server"]["accuracy_last"]) == ("aggregation", None)
    assert summary["test_images"] is report["test_images"] is None
    assert [row["accuracy"] for row in summary["rounds"]] == [None, None]


def test_it_is_done_only_once_and_resumes_from_the_store(uploads, call, tmp_path):
    call(uploads, "--out", str(tmp_path / "out"))
    code, printed = call(uploads, "--out", str(tmp_path / "again"))
    assert code == 0
    assert "from store" in printed
    assert len(list((tmp_path / "store" / "distill").glob("*/manifest.json"))) == 1
    first, second = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("out", "again"))
    assert first["server"] == second["server"]


def test_loggers_know_other_uploads_as_another_run(uploads, write, call, folder, tmp_path, monkeypatch):
    ids = []

    def noted(*args, **named):
        found = about(*args, **named)
        ids.append(found.id)
        return found

    monkeypatch.setattr("oneshot_fl.session.about", noted)
    for _ in range(2):
        call(uploads, "--out", str(tmp_path / "out"), "method=fedavg")
    (folder / "three.safetensors").unlink()
    write("four")
    call(uploads, "--out", str(tmp_path / "out"), "method=fedavg")
    assert ids[0] == ids[1] != ids[2]


def test_strict_stops_and_nothing_left_is_3(uploads, call, folder, tmp_path):
    code, printed = call(uploads, "--out", str(tmp_path / "out"), "--strict")
    assert (code, "bad.pt" in printed) == (2, True)
    assert not (tmp_path / "out" / "summary.json").exists()
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert call(uploads, "--out", str(tmp_path / "out"))[0] == 3
    code, printed = call(uploads, "--out", str(tmp_path / "out"), "--strict")
    assert (code, "bad.pt: is no .safetensors file" in printed, "--strict" in printed) == (2, True, True)
    assert call(str(tmp_path / "absent"), "--out", str(tmp_path / "out"))[0] == 2


@pytest.mark.parametrize("name", ["config.yaml", "server.safetensors", "metrics.csv", "report.json"])
def test_somebodys_files_are_not_written_over_but_those_of_one_that_was_stopped_are(name, uploads, call, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    code, printed = call(uploads, "--out", str(out), "method=fedavg")
    assert (code, f"{out}: holds {name}, which would be written over" in printed) == (2, True), printed
    assert [path.name for path in out.iterdir()] == [name]
    (out / ".lock").touch()
    assert call(uploads, "--out", str(out), "method=fedavg")[0] == 0


@pytest.mark.parametrize("end", [Interrupted(2), OneshotError("no")])
def test_one_that_fails_or_is_stopped_tells_of_the_earlier_model(end, tmp_path, capsys):
    (tmp_path / "server.safetensors").touch()
    with pytest.raises(type(end)), _left_as_it_was(tmp_path, new=False):
        raise end
    assert "is of an earlier aggregation, and stays as it is" in capsys.readouterr().err


def test_one_that_is_stopped_after_its_model_was_written_does_not_take_it_for_an_earlier_one(tmp_path, capsys):
    model = tmp_path / "server.safetensors"
    for before in (False, True):
        with pytest.raises(Interrupted):
            _stopped_after_writing(model, new=not before)
        assert f"{model}: is this one's, but not all that tells of it is there" in capsys.readouterr().err


def _stopped_after_writing(model, *, new):
    with _left_as_it_was(model.parent, new=new):
        write_atomically(model, "another")
        raise Interrupted(2)


def test_a_refused_aggregation_leaves_no_folder_that_was_not_there(uploads, call, tmp_path):
    out = tmp_path / "out"
    assert call(uploads, "--out", str(out), "--strict")[0] == 2
    assert not out.exists()
    out.mkdir()
    assert call(uploads, "--out", str(out), "--strict")[0] == 2
    assert out.exists()


def test_what_was_exported_of_an_earlier_model_is_told(uploads, call, tmp_path):
    out = tmp_path / "out"
    assert "export it anew" not in call(uploads, "--out", str(out), "method=fedavg")[1]
    (out / "export").mkdir()
    (out / "export" / "model.onnx").touch()
    assert f"{out}/export: is of the model before this one" in call(uploads, "--out", str(out), "method=fedavg")[1]


def test_a_test_set_that_is_not_there_is_told_before_any_upload_is_read(uploads, call, tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.aggregation.run.federation_of", None)
    code, printed = call(uploads, "--out", str(tmp_path / "out"), f"test={tmp_path}/images")
    assert (code, f"test={tmp_path}/images: " in printed) == (2, True), printed


def test_of_two_test_sets_the_last_counts_and_an_empty_word_names_none(uploads, call, tmp_path):
    code, printed = call(uploads, "--out", str(tmp_path / "out"), "method=fedavg", "test=", "test=x")
    assert (code, "test=: names no folder" in printed) == (2, True), printed
    code, printed = call(uploads, "--out", str(tmp_path / "out"), "method=fedavg", "test=first", "test=last")
    assert (code, "test=last" in printed, "first" in printed) == (2, True, False), printed


def test_an_error_about_the_uploads_that_are_left_tells_which_are_not(uploads, call, tmp_path):
    write_image(tmp_path / "images" / "d" / "x.png", 0)
    code, printed = call(uploads, "--out", str(tmp_path / "out"), f"test={tmp_path}/images", "method=fedavg")
    assert (code, "classes that are not among a, b, c: d" in printed) == (2, True), printed
    assert "oneshot_fl: quarantined bad.pt: is no .safetensors file" in printed


def test_one_that_fails_leaves_an_earlier_model_as_it_was(uploads, call, folder, tmp_path):
    out = tmp_path / "out"
    assert call(uploads, "--out", str(out), "method=fedavg")[0] == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for path in folder.glob("*.safetensors"):
        path.unlink()
    code, printed = call(uploads, "--out", str(out), "method=fedavg")
    assert (code, "server.safetensors: is of an earlier aggregation" in printed) == (3, True), printed
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("place", [".", "out", "below/out", "../link/out", "../uploads"])
def test_results_among_the_uploads_are_refused_before_anything_is_made(uploads, call, folder, tmp_path, place):
    (tmp_path / "link").symlink_to(folder)
    before = sorted(folder.rglob("*"))
    code, printed = call(uploads, "--out", f"{uploads}/{place}", "method=fedavg")
    assert (code, f"--out {folder / place}: " in printed, "choose a folder outside of it" in printed) == (2, True, True)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("summary.json", '{"method": "dense", "data": "digits"}', "a run of method=dense data=digits"),
        ("run.json", '{"method": "dense", "data": "digits"}', "a run of method=dense data=digits"),
        ("summary.json", "[1]", "something that is no aggregation"),
        ("summary.json", "{", "something that is no aggregation"),
    ],
)
def test_a_run_is_not_replaced(name, content, what, uploads, call, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text(content)
    code, printed = call(uploads, "--out", str(tmp_path / "out"), "method=fedavg")
    line = f"--out {tmp_path}/out: holds {what} ({name}), which would be replaced; choose another folder"
    assert (code, line in printed) == (2, True), printed
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {name: content}


def test_an_earlier_aggregation_is_replaced(uploads, write, call, tmp_path):
    call(uploads, "--out", str(tmp_path / "out"), "method=fedavg")
    write("four")
    code, printed = call(uploads, "--out", str(tmp_path / "out"), "method=fedavg")
    assert (code, "4 of 5 uploads used" in printed) == (0, True), printed
    assert len(json.loads((tmp_path / "out" / "summary.json").read_text())["accepted"]) == 4


def test_results_beside_uploads_that_are_named_alike_are_fine(uploads, call, folder):
    assert call(uploads, "--out", f"{folder}-out", "method=fedavg")[0] == 0


def test_an_upload_that_is_turned_away_decides_nothing_for_the_others(write, folder, call, tmp_path):
    write("0evil", classes="zyxw", model="lenet5", mean=0.25, times=100.0)
    for name in ("one", "two", "three"):
        write(name, samples=100)
    code, printed = call(str(folder), "--out", str(tmp_path / "out"), "method=fedavg")
    assert (code, "3 of 4 uploads used" in printed) == (0, True), printed
    assert "note: quarantined 0evil.safetensors: " in printed
    description = read_model(tmp_path / "out" / "server.safetensors").description
    assert (description.class_names, description.architectures[0]["name"]) == (("a", "b", "c"), "cnn2")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [one["name"] for one in report["quarantined"]] == ["0evil.safetensors"]
    assert report["notes"] == []
    code, printed = call(str(folder), "--out", str(tmp_path / "strict"), "method=fedavg", "--strict")
    assert (code, "0evil.safetensors: " in printed, "--strict" in printed) == (2, True, True)
    for name in ("one", "two", "three"):
        (folder / f"{name}.safetensors").unlink()
    assert call(str(folder), "--out", str(tmp_path / "none"), "method=fedavg")[0] == 3


def test_only_decoders_left_are_nothing_left_for_a_method_of_classifiers(write, folder, call, tmp_path):
    write("drawn", kind="decoder", model="cvae_mlp", label_counts=(1, 2, 3))
    write("evil", times=100.0)
    code, printed = call(str(folder), "--out", str(tmp_path / "out"), "method=fedavg")
    assert (code, "no upload can be used" in printed) == (3, True), printed
    assert "drawn.safetensors: is a decoder, which method=fedavg does not use" in printed


def test_names_of_classes_that_may_mean_the_same_are_noted(write, folder, call, tmp_path):
    write("one")
    write("two", classes="abC")
    code, printed = call(str(folder), "--out", str(tmp_path / "out"))
    assert (code, "note: classes 'c' and 'C' differ only in case" in printed) == (0, True), printed
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert any("classes 'c' and 'C'" in note for note in report["notes"])


def test_a_test_folder_is_tested_on_and_another_method_is_chosen(uploads, call, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "images" / name / "x.png")
    code, printed = call(uploads, "--out", str(tmp_path / "out"), f"test={tmp_path}/images", "method=fedavg")
    assert (code, "test accuracy" in printed) == (0, True), printed
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["server"]["accuracy_last"] in (0.0, 0.5, 1.0)
    assert summary["ensemble"]["rows"].keys() >= {"uniform", "probability"}
    assert "note: test: no image of c, so its accuracy tells nothing of them" in printed


def test_how_many_images_it_was_tested_on_is_told_everywhere(uploads, call, tmp_path):
    for name in "abc":
        write_image(tmp_path / "images" / name / "x.png", 0)
    code, printed = call(uploads, "--out", str(tmp_path / "out"), f"test={tmp_path}/images", "method=fedavg")
    assert (code, bool(re.search(r"test accuracy \d+\.\d\d% of 3 images; report", printed))) == (0, True), printed
    told = [
        json.loads((tmp_path / "out" / name).read_text())["test_images"] for name in ("summary.json", "report.json")
    ]
    assert told == [3, 3]
    server = json.loads((tmp_path / "out" / "summary.json").read_text())["server"]
    assert (server["calibration"], len(server["abstention"])) == (None, 6)  # FedAvg makes no images
    assert "of 3 images, " in (tmp_path / "out" / "report.html").read_text()


def test_test_files_that_are_not_read_are_noted_by_the_setting(uploads, call, tmp_path):
    write_image(tmp_path / "images" / "a" / "0.png", 0)
    (tmp_path / "images" / "a" / "1.dcm").touch()
    images = f"test={tmp_path}/images"
    code, printed = call(uploads, "--out", str(tmp_path / "out"), images, "method=fedavg")
    line = f"{images}: files that are not read as images: 1, for instance {tmp_path}/images/a/1.dcm; they"
    assert (code, f"note: {line}" in printed, "data.root" in printed) == (0, True, False), printed
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert any(note.startswith(line) for note in report["notes"])


def test_test_images_are_read_as_those_of_the_clients(write, folder, call, tmp_path):
    for name in ("one", "two"):
        write(name, tones=Tones(max_value=1000.0))
    for name, white in (("a", 0), ("b", 1000)):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.fromarray(np.full((8, 8), white, np.uint16)).save(tmp_path / "images" / name / "x.png")
    code, printed = call(str(folder), "--out", str(tmp_path / "out"), f"test={tmp_path}/images", "method=fedavg")
    assert (code, "test accuracy" in printed) == (0, True), printed
    assert read_model(tmp_path / "out" / "server.safetensors").description.tones == Tones(max_value=1000.0)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (None, None, "no image file in "),
        ("0.png", np.zeros((8, 8), np.uint8), "images holds images and no folder of a class; give the folder above it"),
        ("test/a/0.png", np.zeros((8, 8), np.uint8), "images holds parts of a data set and no folder of a class"),
        ("d/0.png", np.zeros((8, 8), np.uint8), "has classes that are not among a, b, c: d"),
        ("a/0.png", b"nothing", "0.png is not a readable image"),
        ("a/0.png", np.full((8, 8), 4095, np.uint16), "uploads tell which value is white"),
    ],
)
def test_what_is_wrong_with_test_images_is_said_of_the_option(name, content, says, uploads, call, tmp_path):
    if name is not None:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content) if isinstance(content, bytes) else Image.fromarray(content).save(path)
    code, printed = call(uploads, "--out", str(tmp_path / "out"), f"test={tmp_path}/images", "method=fedavg")
    assert (code, f"test={tmp_path}/images: " in printed, says in printed) == (2, True, True), printed
    assert not re.search(r"data\.(root|max_value)", printed)


def test_the_test_images_are_in_the_key_of_the_history_that_they_are_tested_in():
    federation = SimpleNamespace(spec=SMALL, class_names=("a", "b", "c"))
    tests = [
        ImageBatches(
            torch.full((2, 1, 8, 8), pixel, dtype=torch.uint8), torch.tensor([0, label]), spec=SMALL, batch_size=2
        )
        for pixel, label in ((0, 1), (1, 1), (0, 2), (0, 1))
    ]
    keys = [_key(federation, test) for test in (None, *tests)]
    assert len(set(keys)) == 4
    assert keys[1] == keys[4]


def test_the_public_face_does_the_same(uploads, tmp_path):
    result = oneshot_fl.aggregate(uploads, "method=fedavg", *HERE, f"store={tmp_path}/store", folder=tmp_path / "out")
    assert result.accuracy is None
    assert (tmp_path / "out" / "server.safetensors").is_file()


OWN_MODEL = """import torch
from torch import nn


class Activated(nn.Linear):
    def __init__(self, spec, *, act):
        super().__init__(spec.channels * spec.size**2, spec.classes)
        self.act = getattr(torch, act)

    def forward(self, x):
        return 3 * self.act(super().forward(x.flatten(1)))


def tiny(spec, *, width):
    inputs = spec.channels * spec.size**2
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, spec.classes))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A hospital's own architecture: its code, and the folder whose file gives it a name."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own_architecture.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(tmp_path / "code")
    sys.modules.pop("own_architecture", None)  # another test's, of another folder
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "tiny.yaml").write_text("name: tiny\n_target_: own_architecture.tiny\nwidth: 4\n")
    return tmp_path / "conf"


def test_a_model_of_ones_own_is_trained_and_made_the_servers_from_a_folder_of_ones_own(own, call, tmp_path):
    settings = (*HERE[:1], f"store={tmp_path}/store", "model=tiny", "clients.epochs=1", "partition.clients=2")
    for number in range(2):
        for name in "ab":
            write_image(tmp_path / "images" / name / "0.png", 100 * number)
        out = tmp_path / "up" / f"{number}.safetensors"
        oneshot_fl.train_client(tmp_path / "images", *settings, out=out, number=number, config_dir=own)
    allow, result = ["own_architecture.tiny"], tmp_path / "out"
    chosen = ("method=fedavg", "server_model=tiny", *HERE, f"store={tmp_path}/store")
    made = oneshot_fl.aggregate(tmp_path / "up", *chosen, folder=result, allow=allow, config_dir=own)
    assert made.summary["server"]["model"] == "tiny"
    assert made.model(allow=allow).class_names == ("a", "b")
    words = (str(tmp_path / "up"), "--out", str(tmp_path / "typed"), "method=fedavg", "server_model=tiny")
    code, printed = call(*words, "--allow", *allow, "--config-dir", str(own))
    assert (code, "2 of 2 uploads used" in printed) == (0, True), printed
    code, printed = call(*words, "--allow", *allow)
    assert (code, "server_model=tiny: there is no choice of that name" in printed) == (2, True), printed


def test_more_architectures_than_a_model_file_holds_are_told_before_anything_is_made(own, folder, call, tmp_path):
    target = "own_architecture.tiny"
    for width in range(1, 22):
        told = ModelDescription("classifier", ({"_target_": target, "width": width},), SMALL, tuple("abc"))
        write_model(folder / f"{width}.safetensors", build(told, allow=[target]).state_dict(), told)
    words = (str(folder), "--out", str(tmp_path / "out"), "--allow", target, "gate=none")
    code, printed = call(*words, "method=fedavg")
    assert (code, "would be 21 architectures that vote, and a model file holds 20" in printed) == (2, True), printed
    assert not (tmp_path / "out").exists()
    (folder / "21.safetensors").unlink()
    code, printed = call(*words, "method=fedavg")
    assert code == 0, printed
    assert len(read_model(tmp_path / "out" / "server.safetensors").description.architectures) == 20


def test_models_that_differ_in_a_function_alone_are_not_averaged_as_one(own, folder, tmp_path):
    target, written = "own_architecture.Activated", {}
    for act in ("sin", "tanh"):
        told = ModelDescription("classifier", ({"_target_": target, "act": act},), SMALL, tuple("abc"))
        written[act] = build(told, allow=[target])
        written[act].weight.data += 0.1 * torch.randn(3, 64)
        write_model(folder / f"{act}.safetensors", written[act].state_dict(), told)
    chosen = ("method=fedavg", *HERE, f"store={tmp_path}/store")
    made = oneshot_fl.aggregate(folder, *chosen, folder=tmp_path / "out", allow=[target]).model(allow=[target])
    for member, alone in zip(members_of(made.model), written.values(), strict=True):
        assert torch.equal(member.weight, alone.weight)


def test_of_two_in_one_folder_the_second_is_refused(uploads, call, tmp_path):
    out = tmp_path / "out"
    with alone_in(out):
        code, printed = call(uploads, "--out", str(out), "method=fedavg")
    assert (code, "makes a result there; wait for it to end, or choose another folder" in printed) == (2, True), printed
    assert call(uploads, "--out", str(out), "method=fedavg")[0] == 0


def test_a_page_that_is_somebody_elses_is_not_written_over(uploads, call, tmp_path):
    page = tmp_path / "report.html"
    page.write_text("<html>of a study</html>")
    code, printed = call(uploads, "--out", str(tmp_path), "method=fedavg")
    assert (code, f"{page}: is no report of an aggregation and is not overwritten" in printed) == (2, True), printed
    assert page.read_text() == "<html>of a study</html>"
