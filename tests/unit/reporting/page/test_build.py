import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.page.build import Choices, drawing_library, report_page, write_report
from oneshot_fl.reporting.page.payload import thinned
from oneshot_fl.reporting.tables.measures import measure_of

LAST = measure_of("accuracy", which="last")
EVIL = "</script><script>alert(1)</script>"


def _page(runs, tmp_path, library="/* */"):
    return report_page(runs, tmp_path / "report.html", Choices(LAST, megabytes=0, to_do=5), library=library)


def _data(page):
    return json.loads(re.search(r'id="payload">(.*?)</script>', page, re.S)[1])


def test_a_half_finished_sweep_is_told_with_what_is_missing(make_run, tmp_path):
    runs = [make_run(value, seed=seed) for seed, value in enumerate((0.8, 0.9, 0.85))]
    runs += [make_run(value, seed=seed, method="fedavg") for seed, value in enumerate((0.4, 0.45, 0.5))]
    runs += [replace(make_run(None, seed=3), error="it broke", overrides=("seed=3",)), make_run(None, seed=4)]
    page = _page(runs, tmp_path)
    assert "Better than the other." in page
    assert "<b>6</b> done" in page
    assert "<b>2</b> failed" in page
    assert "<b>5</b> to do" in page
    assert "it broke" in page
    assert "python -m oneshot_fl seed=3" in page
    data = _data(page)
    assert data["methods"] == ["fedavg", "fedhydra"]
    assert [(cell["n"], cell["missing"]) for cell in data["cells"]] == [(3, 0), (3, 2)]
    assert len(data["runs"]) == 8


def test_rows_that_are_not_the_same_in_all_settings_are_told(make_run, tmp_path):
    settings = [{"partition": {"alpha": alpha}, "stratify": {"steps": int(10 * alpha)}} for alpha in (0.1, 0.5)]
    page = _page([make_run(settings=each) for each in settings], tmp_path)
    assert "fedhydra is not the same everywhere: stratify.steps=1; stratify.steps=5." in page
    assert "not the same everywhere" not in _page([make_run()], tmp_path)


def test_rows_on_other_partitions_are_told_below_the_verdicts(make_run, tmp_path):
    runs = [make_run(0.6), make_run(0.4, method="fedavg")]
    line = '<p class="note">mnist, dirichlet 0.1: Partitions differ in seed 0'
    assert line not in _page(runs, tmp_path)
    for run, digest in zip(runs, "ab", strict=True):
        run.summary["partition"] = {"sha256": digest}
    page = _page(runs, tmp_path)
    assert line in page
    assert "fedavg: no seed to compare" in page


def test_a_link_to_the_folder_that_one_is_in_has_its_name(make_run, tmp_path, monkeypatch):
    (tmp_path / "seed=3").mkdir()
    monkeypatch.chdir(tmp_path / "seed=3")
    page = _page([replace(make_run(), folder=Path("."))], tmp_path)
    links = re.findall(r"<a [^>]*>([^<]*)</a>", page)
    assert "seed=3" in links
    assert "" not in links


def test_nothing_in_a_record_becomes_code(make_run, tmp_path):
    names = {"class_names": [EVIL]}
    run = make_run(method="fedavg", study=EVIL, error=EVIL, overrides=(EVIL,))
    run.summary["data_spec"] = names
    page = _page([run, replace(make_run(None), error=EVIL, method=EVIL)], tmp_path)
    plain = _page([make_run(method="fedavg"), make_run(None)], tmp_path)
    assert page.count("<script") == plain.count("<script")
    assert "alert(1)</script>" not in page
    assert _data(page)["runs"][0]["classes"] == [EVIL]


def test_the_page_forbids_and_asks_for_nothing_from_elsewhere(make_run, tmp_path):
    page = _page([make_run()], tmp_path)
    assert "default-src 'none'" in page
    assert re.findall(r'(?:src|href)="(?:https?:)?//', page) == []


def test_what_a_setting_s_number_stands_for_is_text_below_its_verdict(make_run, tmp_path):
    several = [{"epochs": 7, "batch_size": 7, "augmentation": letter * 60} for letter in "ab"]
    page = _page([make_run(settings={"clients": each}) for each in several], tmp_path)
    for letter in "ab":
        assert f'<div class="note">clients.augmentation={letter * 60}</div>' in page
    assert [setting["apart"][-1] for setting in _data(page)["settings"]] == ["a", "b"]


def test_runs_that_failed_before_anything_was_known_make_a_page(make_run, tmp_path):
    page = _page([replace(make_run(None), settings={}, error="no such method")], tmp_path)
    assert "no such method" in page
    assert _data(page)["settings"] == []


def test_long_curves_are_thinned_with_their_ends():
    assert thinned(range(5), 9) == [0, 1, 2, 3, 4]
    kept = thinned(range(200), 60)
    assert (len(kept), kept[0], kept[-1]) == (60, 0, 199)
    assert kept == sorted(set(kept))


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    with pytest.raises(OneshotError, match=r"vl_convert is missing; pip install 'oneshot-fl\[report\]'"):
        drawing_library()


def test_a_place_for_the_page_that_is_none_is_one_line(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.reporting.page.build.drawing_library", lambda: "/* */")
    (tmp_path / "file").touch()
    with pytest.raises(OneshotError, match=r"^\S+/file: cannot be written"):
        write_report([make_run(method="fedavg")], tmp_path / "file" / "report.html", Choices(LAST))


def test_what_is_no_report_is_not_overwritten(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.reporting.page.build.drawing_library", lambda: "/* */")
    model, report = tmp_path / "server.safetensors", tmp_path / "report.html"
    model.write_bytes(b"\xff weights")
    with pytest.raises(OneshotError, match=r"server\.safetensors: is no report of ours and is not overwritten; choose"):
        write_report([make_run(method="fedavg")], model, Choices(LAST))
    assert model.read_bytes() == b"\xff weights"
    for title in ("One", "Other"):
        write_report([make_run(method="fedavg")], report, Choices(LAST, title=title))
    assert "Other" in report.read_text()
