import json
import re

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.collected import collect
from oneshot_fl.reporting.tables.run import DATA_FOUND
from oneshot_fl.reporting.tables.runs import every_run, read_runs
from tests.records import RECORD, RESULT, SETTINGS, write_record, write_summary


def _data(**changes):
    return {**SETTINGS, "data": {**SETTINGS["data"], **changes}}


def test_runs_are_found_at_any_depth_and_the_newest_of_two_alike_counts(tmp_path):
    write_summary(tmp_path / "a", at=1)
    write_summary(tmp_path / "b" / "c", study="again", at=2)
    write_summary(tmp_path / "d", seed=1, at=3)
    runs = read_runs([tmp_path])
    assert [(run.seed, run.study) for run in runs] == [(0, "again"), (1, "fedavg")]
    assert all(run.status == "done" for run in runs)
    assert runs[0].belongs_to("fedavg")  # the run that it stands for


def test_runs_are_chosen_first_and_then_alike_across_a_setting(tmp_path, capsys):
    for at, (name, size, seed) in enumerate((("a", 28, 0), ("b", 30, 0), ("c", 28, 1))):
        write_summary(tmp_path / name, settings=_data(size=size), data_sha256=str(size), seed=seed, at=at)
    assert len(read_runs([tmp_path])) == 3
    (run,) = read_runs([tmp_path], where=["seed=0"], pooled=["data.size"])
    assert run.folder == tmp_path / "b"
    assert "1 runs differ from another only in data.size; of these the newer counts" in capsys.readouterr().err


def test_runs_behind_links_are_read_once(tmp_path):
    write_summary(tmp_path / "elsewhere" / "a", seed=1)
    write_summary(tmp_path / "runs" / "b")
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "again").symlink_to("b")
    (tmp_path / "runs" / "b" / "up").symlink_to(tmp_path / "runs")
    assert sorted(run.seed for run in read_runs([tmp_path / "runs"])) == [0, 1]
    write_record(tmp_path / "failed" / "run.json", status="failed", settings={})
    assert len(read_runs([tmp_path / "failed", tmp_path / "runs" / ".." / "failed"])) == 1


@pytest.mark.parametrize(
    "settings",
    [
        _data(size=30),
        _data(root="west"),
        _data(size=28.5),
        {**SETTINGS, "a_group_of_tomorrow": {"on": True}},
        {**SETTINGS, "partition": {"name": "iid", "clients": 5, "shuffled": False}},
    ],
)
def test_runs_that_differ_in_anything_are_two(tmp_path, settings):
    write_summary(tmp_path / "a")
    write_summary(tmp_path / "b", settings=settings, data_sha256="2")
    assert len(read_runs([tmp_path])) == 2


def test_a_number_is_the_same_however_it_is_written(tmp_path):
    write_summary(tmp_path / "a")
    write_summary(tmp_path / "b", settings=_data(size=28.0))
    assert len(read_runs([tmp_path])) == 1


def test_runs_whose_sources_draw_in_another_order_are_two(tmp_path):
    for took, order in enumerate((("strokes", "mixtures"), ("mixtures", "strokes"))):
        source = {each: {"_target_": f"parts.{each}"} for each in order}
        settings = {**SETTINGS, "method": {"name": "fedavg", "source": source}}
        write_summary(tmp_path / order[0], settings=settings, seconds={"run": took})
    assert len(read_runs([tmp_path])) == 2


def test_images_that_a_method_does_not_use_make_no_other_run(tmp_path):
    write_summary(tmp_path / "a")
    write_summary(tmp_path / "b", settings={**SETTINGS, "proxy": {"name": "noise", "samples": 7}})
    assert len(read_runs([tmp_path])) == 1


def test_the_same_data_in_two_places_are_the_same_run_and_other_data_in_one_place_are_not(tmp_path):
    write_summary(tmp_path / "a", at=1)
    write_summary(tmp_path / "b", settings=_data(root="west"), at=2)
    (run,) = read_runs([tmp_path])
    assert run.setting("data.root") == "east"
    write_summary(tmp_path / "c", data_sha256="2", at=3)
    first, second = read_runs([tmp_path])
    assert (first.setting(f"data.{DATA_FOUND}"), second.setting(f"data.{DATA_FOUND}")) == (None, 2)


def test_data_that_changed_do_not_become_those_of_a_version_of_the_users_own(tmp_path):
    for at, (version, content) in enumerate(((1, "a"), (1, "b"), (2, "c"))):
        write_summary(tmp_path / str(at), seed=at, settings=_data(version=version), data_sha256=content, at=at)
    runs = read_runs([tmp_path])
    assert [run.setting("data.version") for run in runs] == [1, 1, 2]
    assert len({json.dumps(run.shared, sort_keys=True) for run in runs}) == 3


def test_settings_that_earlier_versions_told_with_the_data_make_no_other_data(tmp_path):
    parts = {"name": "fedhydra", "ensemble": {"_target_": "oneshot_fl.methods.fedhydra.StratifiedAggregation"}}
    for size in (8, 32):
        record = {key: value for key, value in RECORD.items() if key != "overrides"}
        settings = {**SETTINGS, "method": parts, "stratify": {"batch_size": size}}
        (tmp_path / str(size)).mkdir()
        told = {**record, "settings": settings, "server": {}, "rounds": [], "protocol": f"with batches of {size}"}
        (tmp_path / str(size) / "summary.json").write_text(json.dumps(told))
    runs = read_runs([tmp_path])
    assert [run.setting(f"data.{DATA_FOUND}") for run in runs] == [None, None]
    assert len({run.protocol for run in runs}) == 1


def test_a_run_that_never_got_to_its_data_has_those_of_its_place(tmp_path):
    write_summary(tmp_path / "a", at=1)
    write_summary(tmp_path / "b", seed=1, settings=_data(root="west"), at=2)
    write_record(tmp_path / "c" / "run.json", seed=2, settings=_data(root="west"), status="failed", error="no memory")
    assert {json.dumps(run.shared, sort_keys=True) for run in read_runs([tmp_path])} == {
        json.dumps({key: SETTINGS[key] for key in sorted(SETTINGS) if key not in ("method", "proxy")}, sort_keys=True)
    }


def test_a_failed_run_is_not_taken_for_one_on_development_images_that_is_newer(tmp_path):
    write_summary(tmp_path / "a", at=1)
    write_record(tmp_path / "b" / "run.json", seed=1, status="failed", error="no memory", at=2)
    write_summary(tmp_path / "c", settings={**SETTINGS, "development": True}, data_sha256="2", at=3)
    runs = read_runs([tmp_path])
    assert {run.setting(f"data.{DATA_FOUND}") for run in runs} == {None}
    assert [run.shared for run in runs if run.status == "failed"] == [runs[0].shared]


def test_a_finished_run_counts_before_a_newer_one_that_is_not(tmp_path):
    write_summary(tmp_path / "a", at=1)
    for number, status in enumerate(("running", "failed", "interrupted")):
        write_record(tmp_path / str(number) / "run.json", status=status, at=2)
    write_record(tmp_path / "a" / "run.json", status="running", at=3)  # run again in the same folder
    (run,) = read_runs([tmp_path])
    assert run.status == "done"


def test_a_failed_run_in_the_folder_of_a_finished_one_is_not_hidden_by_it(tmp_path):
    write_summary(tmp_path, at=1)
    write_record(tmp_path / "run.json", method="dense", status="failed", error="no memory", at=2)
    assert [(run.method, run.status) for run in read_runs([tmp_path])] == [("fedavg", "done"), ("dense", "failed")]


@pytest.mark.parametrize(
    ("told", "status", "error"),
    [
        ({"status": "running"}, "unfinished", ""),
        ({"status": "interrupted"}, "interrupted", ""),
        ({"status": "failed", "error": "no memory"}, "failed", "no memory"),
        ({"status": "done"}, "unfinished", "its summary is missing"),
    ],
)
def test_a_run_without_a_summary_is_known_by_its_trace(tmp_path, told, status, error):
    write_record(tmp_path / "run.json", **told, overrides=["method=fedavg"])
    (run,) = read_runs([tmp_path])
    assert (run.method, run.status, run.error, run.summary) == ("fedavg", status, error, None)
    assert (run.folder, run.overrides) == (tmp_path, ("method=fedavg",))


def test_runs_that_failed_before_they_were_known_are_each_read(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        trace = {"status": "failed", "error": "logger=null: wrong", "overrides": ["logger=null"]}
        (tmp_path / name / "run.json").write_text(json.dumps(trace))
    assert [(run.status, run.error, run.settings) for run in read_runs([tmp_path])] == [
        ("failed", "logger=null: wrong", {})
    ] * 2


def test_a_run_that_failed_before_it_was_known_is_replaced_by_one_of_the_same_command(tmp_path):
    for number, (status, overrides) in enumerate([("failed", ["data=mnist"]), ("failed", ["data=svhn"])]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "run.json").write_text(json.dumps({"status": status, "overrides": overrides}))
    write_summary(tmp_path / "again", overrides=["data=mnist"])
    assert [(run.status, run.overrides) for run in read_runs([tmp_path])] == [
        ("failed", ("data=svhn",)),
        ("done", ("data=mnist",)),
    ]


def test_a_result_of_another_study_that_a_run_took_over_counts_for_both(tmp_path):
    write_summary(tmp_path, study="fedhydra/table1", at=1)
    write_record(tmp_path / "run.json", study="fedhydra/table4", status="done", at=2)
    (run,) = read_runs([tmp_path])
    assert run.status == "done"
    assert run.belongs_to("fedhydra/table1")
    assert run.belongs_to("fedhydra/table4")


def test_a_finished_run_whose_data_changed_since_is_no_unfinished_one(tmp_path):
    for number, (name, content) in enumerate([("fedavg", "1"), ("fedhydra", "1"), ("fedavg", "2")]):
        write_summary(tmp_path / str(number), method=name, data_sha256=content, at=number)
        write_record(tmp_path / str(number) / "run.json", method=name, status="done", at=number + 10)
    assert [(run.method, run.status) for run in read_runs([tmp_path])] == [
        ("fedavg", "done"),
        ("fedhydra", "done"),
        ("fedavg", "done"),
    ]


def test_the_newer_of_two_counts_in_whatever_order_folders_are_named(tmp_path):
    for number, name in enumerate(("old", "new")):
        write_summary(tmp_path / name, server={"accuracy_last": number}, at=number)
    for order in (("old", "new"), ("new", "old")):
        (run,) = read_runs([tmp_path / name for name in order])
        assert run.summary["server"]["accuracy_last"] == 1


def test_an_aggregation_is_no_run(tmp_path):
    write_summary(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "summary.json").write_text(json.dumps({"kind": "aggregation", "server": {}}))
    assert [run.method for run in read_runs([tmp_path])] == ["fedavg"]


def test_a_run_and_its_copies_are_read_once_and_are_as_new_as_the_newest(tmp_path):
    for at, (name, seconds) in enumerate((("run", 1), ("other", 2), ("copy", 1))):
        write_summary(tmp_path / name, seconds=seconds, at=at)
    write_record(tmp_path / "copy" / "run.json", study="copied", status="done")
    collect(every_run([tmp_path]), tmp_path / "all.jsonl")
    runs = every_run([tmp_path, tmp_path / "all.jsonl"])
    assert [(run.summary["seconds"], run.folder) for run in runs] == [(2, tmp_path / "other"), (1, tmp_path / "copy")]
    assert runs[1].all_studies == ("fedavg", "copied")


def test_a_copy_of_an_older_result_is_no_newer_for_being_copied(tmp_path, capsys):
    for folder, begun, accuracy, at in (("new", 2.0, 0.2, 2), ("old", 1.0, 0.1, 1), ("copy of old", 1.0, 0.1, 3)):
        write_summary(tmp_path / folder, server={"accuracy_last": accuracy}, at=at)
        write_record(tmp_path / folder / "run.json", status="done", begun=begun, seconds=0.5, at=at)
    (run,) = read_runs([tmp_path])
    assert run.summary["server"]["accuracy_last"] == 0.2
    assert f"1 runs are here with more than one result; the newest counts, here that of {tmp_path / 'new'}" in (
        capsys.readouterr().err
    )
    collect(every_run([tmp_path]), tmp_path / "all.jsonl")
    assert [run.written for run in every_run([tmp_path / "all.jsonl"])] == [1.5, 2.5]


def test_traces_that_are_named_themselves_are_each_read(tmp_path):
    for seed in (0, 1):
        write_record(tmp_path / str(seed) / "run.json", seed=seed, status="failed")
    assert {run.seed for run in every_run(tmp_path.glob("*/run.json"))} == {0, 1}


@pytest.mark.parametrize("words", [("old.jsonl", "new.jsonl"), ("new.jsonl", "old.jsonl"), ("new.jsonl", "old")])
def test_of_two_files_the_newer_result_counts_in_whatever_order_they_are_named(tmp_path, capsys, words):
    for at, name in enumerate(("old", "new"), 1):
        write_summary(tmp_path / name / "run", server={"accuracy_last": at / 10}, at=at)
        collect(read_runs([tmp_path / name]), tmp_path / f"{name}.jsonl")
    collect(read_runs([tmp_path / "new.jsonl"]), tmp_path / "new.jsonl")  # which leaves its time as it was
    (run,) = read_runs([tmp_path / word for word in words])
    assert run.summary["server"]["accuracy_last"] == 0.2
    assert "1 runs are here with more than one result; the newest counts" in capsys.readouterr().err


def test_of_two_results_without_a_time_the_last_named_counts_and_that_is_told(tmp_path, capsys):
    for name in ("one", "other"):
        line = {**RECORD, **RESULT, "server": {"accuracy_last": {"one": 0.1, "other": 0.2}[name]}}
        (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(line)}\n" * 2)
    (run,) = read_runs([tmp_path / "other.jsonl", tmp_path / "one.jsonl"])
    assert run.summary["server"]["accuracy_last"] == 0.1
    assert "1 runs are in these files with two results, not told from when" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}'])
def test_what_is_no_summary_is_refused_by_name(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(OneshotError, match=r"summary.json: not what this version writes"):
        read_runs([tmp_path])


@pytest.mark.parametrize("word", ["NaN", "-Infinity"])
def test_an_accuracy_that_is_no_number_is_refused_by_name(tmp_path, word):
    line = json.dumps({**RECORD, **RESULT, "server": {"accuracy_last": float(word)}})
    (tmp_path / "summary.json").write_text(line)
    with pytest.raises(OneshotError, match=rf"summary.json: .*{word} stands where a number should"):
        read_runs([tmp_path])


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"seed": "1"}, "seed: '1' is no whole number"),
        ({"seed": 1.0}, "seed: 1.0 is no whole number"),
        ({"server": {"accuracy_last": "0.5"}}, "server.accuracy_last: '0.5' is no accuracy between 0 and 1"),
        ({"server": {"accuracy_last": 97.0}}, "server.accuracy_last: 97.0 is no accuracy"),
        ({"ensemble": {"rows": {"uniform": -0.2}}}, "ensemble.rows.uniform: -0.2 is no accuracy"),
        ({"server": 0.9}, "server: 0.9 is no object"),
        ({"ensemble": [0.9]}, "ensemble: [0.9] is no object"),
        ({"ensemble": {"rows": [0.9]}}, "ensemble.rows: [0.9] is no object"),
    ],
)
def test_figures_that_no_run_writes_are_refused_by_name(tmp_path, changes, line):
    write_summary(tmp_path / "run", **changes)
    with pytest.raises(OneshotError, match=rf"run/summary\.json: not what this version writes \({re.escape(line)}"):
        read_runs([tmp_path])


def test_a_file_that_begins_with_a_mark_of_its_encoding_is_read(tmp_path):
    (tmp_path / "all.jsonl").write_text(json.dumps({**RECORD, **RESULT}) + "\n", encoding="utf-8-sig")
    assert len(read_runs([tmp_path / "all.jsonl"])) == 1


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(OneshotError, match=r"no summary.json in or below it"):
        read_runs([tmp_path])


def test_what_is_no_text_is_refused_by_name(tmp_path):
    (tmp_path / "summary.json").write_bytes(b"\x89PNG\xff")
    for path in (tmp_path, tmp_path / "summary.json"):
        with pytest.raises(OneshotError, match=r"summary.json: not what this version writes \(it is no text\); give"):
            read_runs([path])


def test_aggregations_alone_are_no_runs(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps({"kind": "aggregation", "server": {}}))
    with pytest.raises(OneshotError, match=rf"^{tmp_path}: holds aggregations only; give the folder of a run"):
        read_runs([tmp_path])
    (tmp_path / "all.jsonl").write_text("\n")
    with pytest.raises(OneshotError, match=r"all.jsonl: holds no run; give"):
        read_runs([tmp_path / "all.jsonl"])


def test_a_summary_that_is_given_itself_is_read(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps({**RECORD, **RESULT}, indent=1))
    assert [run.method for run in read_runs([tmp_path / "summary.json"])] == ["fedavg"]


def test_blank_lines_of_a_collected_file_are_passed_over(tmp_path):
    lines = [json.dumps({**RECORD, **RESULT, "seed": seed}) for seed in (0, 1)]
    (tmp_path / "all.jsonl").write_text("\n \n".join(lines) + "\n\n")
    assert [run.seed for run in read_runs([tmp_path / "all.jsonl"])] == [0, 1]


def test_files_of_another_program_below_a_folder_are_passed_over_and_said(tmp_path, capsys):
    write_summary(tmp_path / "run")
    for name in ("summary.json", "run.json"):
        (tmp_path / name).write_text('{"lr": 1}')
    assert len(read_runs([tmp_path])) == 1
    assert "summary.json: not of this program (neither schema nor method in it), passed over" in capsys.readouterr().err
    with pytest.raises(
        OneshotError, match=r"summary.json, line 1: not what .* \(neither schema nor method in it\); give"
    ):
        read_runs([tmp_path / "summary.json"])
