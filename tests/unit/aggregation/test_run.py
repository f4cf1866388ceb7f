"""One aggregation from the command line to its report: exit codes, quarantine, resuming, another method."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

import oneshot_fl
from oneshot_fl import cli
from oneshot_fl.config.described import load
from oneshot_fl.models.model_file import read_model

HERE = ("trainer=cpu", "logger=none")
FEW = (
    *HERE,
    *("distill.rounds=2", "distill.batch_size=32", "recite.images=16", "recite.batch_size=8", "recite.steps=2"),
    *("method.source.dead_leaves.samples=32", "method.source.strokes.samples=32", "method.source.mixtures.samples=32"),
)


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Call `oneshot-fl aggregate` in this process: exit code and what it printed."""

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
    assert [row["accuracy"] for row in summary["rounds"]] == [None, None]


def test_it_is_done_only_once_and_resumes_from_the_store(uploads, call, tmp_path):
    call(uploads, "--out", str(tmp_path / "out"))
    code, printed = call(uploads, "--out", str(tmp_path / "again"))
    assert code == 0
    assert "from store" in printed
    assert len(list((tmp_path / "store" / "distill").glob("*/manifest.json"))) == 1
    first, second = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("out", "again"))
    assert first["server"] == second["server"]


def test_strict_stops_and_nothing_left_is_3(uploads, call, folder, tmp_path):
    code, printed = call(uploads, "--out", str(tmp_path / "out"), "--strict")
    assert (code, "bad.pt" in printed) == (2, True)
    assert not (tmp_path / "out" / "summary.json").exists()
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert call(uploads, "--out", str(tmp_path / "out"))[0] == 3
    assert call(str(tmp_path / "absent"), "--out", str(tmp_path / "out"))[0] == 2


def test_a_test_folder_is_tested_on_and_another_method_is_chosen(uploads, call, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "images" / name / "x.png")
    code, printed = call(uploads, "--out", str(tmp_path / "out"), f"test={tmp_path}/images", "method=fedavg")
    assert (code, "test accuracy" in printed) == (0, True), printed
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["server"]["accuracy_last"] in (0.0, 0.5, 1.0)
    assert summary["ensemble"]["rows"].keys() >= {"uniform", "probability"}


def test_the_public_face_does_the_same(uploads, tmp_path):
    result = oneshot_fl.aggregate(uploads, "method=fedavg", *HERE, f"store={tmp_path}/store", folder=tmp_path / "out")
    assert result.accuracy is None
    assert (tmp_path / "out" / "server.safetensors").is_file()
