"""One file for many runs: what is read back, and what is never written over."""

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.collected import collect
from oneshot_fl.reporting.tables.runs import every_run, read_runs
from tests.records import write_record, write_summary


def test_collected_runs_are_read_back_without_what_no_table_shows(tmp_path):
    rounds = [{"round": 1, "accuracy": 0.25, "student": {"kl": 0.1}}]
    write_summary(tmp_path / "a", rounds=rounds, at=1)
    write_summary(tmp_path / "b", seed=1, at=2)
    collect(read_runs([tmp_path]), tmp_path / "all.jsonl")
    runs = read_runs([tmp_path / "all.jsonl"])
    assert [run.seed for run in runs] == [0, 1]
    assert runs[0].summary["rounds"] == [{"round": 1, "accuracy": 0.25}]
    assert runs[0].complete
    (tmp_path / "all.jsonl").write_text("{}\n")
    with pytest.raises(OneshotError, match=r"all.jsonl, line 1: not what this version writes"):
        read_runs([tmp_path / "all.jsonl"])


def test_runs_alike_of_which_each_was_asked_for_something_else_are_all_read_and_collected(tmp_path):
    for at, own in enumerate(({"synthetic": {"fid": 1.0}}, {"privacy": {"server": {}}}, {})):
        write_summary(tmp_path / str(at), **own, at=at)
    collect(every_run([tmp_path]), tmp_path / "all.jsonl")
    for place in (tmp_path, tmp_path / "all.jsonl"):
        assert [len(run.summary.keys() & {"synthetic", "privacy"}) for run in every_run([place])] == [1, 1, 0]
        assert len(read_runs([place])) == 1


def test_collected_runs_still_stand_for_those_of_other_studies(tmp_path):
    write_summary(tmp_path / "run", study="default")
    write_record(tmp_path / "run" / "run.json", study="fedhydra/table4", status="done")
    collect(read_runs([tmp_path / "run"]), tmp_path / "all.jsonl")
    (run,) = read_runs([tmp_path / "all.jsonl"])
    assert run.study == "default"
    assert run.belongs_to("fedhydra/table4")
    assert "studies" not in run.summary


def test_a_place_that_is_none_is_one_line_and_a_new_folder_is_made(tmp_path):
    write_summary(tmp_path / "a")
    runs = read_runs([tmp_path])
    collect(runs, tmp_path / "new" / "all.jsonl")
    assert len(read_runs([tmp_path / "new" / "all.jsonl"])) == 1
    with pytest.raises(OneshotError, match=r"^\S+/all.jsonl: cannot be written"):
        collect(runs, tmp_path / "new" / "all.jsonl" / "all.jsonl")
    with pytest.raises(OneshotError, match=r"^\S+/a: cannot be read \(Is a directory\); choose another file$"):
        collect(runs, tmp_path / "a")


@pytest.mark.parametrize("name", ["notes.md", "a/summary.json", "a/run.json"])
def test_what_is_no_collected_file_is_not_overwritten(tmp_path, name):
    write_summary(tmp_path / "a")
    write_record(tmp_path / "a" / "run.json", status="done")
    (tmp_path / "notes.md").write_text("of mine")
    before = (tmp_path / name).read_bytes()
    with pytest.raises(OneshotError, match=rf"{name}: is no file that --collect wrote and is not overwritten; choose"):
        collect(read_runs([tmp_path / "a"]), tmp_path / name)
    assert (tmp_path / name).read_bytes() == before


def test_a_collected_file_is_written_anew_with_newer_and_more_runs_and_loses_none(tmp_path):
    file = tmp_path / "all.jsonl"
    file.touch()
    for seed in (0, 1):
        write_summary(tmp_path / "old" / str(seed), seed=seed, at=1)
        write_summary(tmp_path / "new" / str(seed), seed=seed, server={"accuracy_last": 0.75}, at=2)
    collect(read_runs([tmp_path / "old"]), file)
    with pytest.raises(
        OneshotError, match=r"all\.jsonl: holds 1 runs that are not among these and would be lost; name"
    ):
        collect(read_runs([tmp_path / "new" / "0"]), file)
    write_summary(tmp_path / "new" / "2", seed=2)
    collect(read_runs([tmp_path / "new"]), file)
    assert [run.summary["server"]["accuracy_last"] for run in read_runs([file])] == [0.75, 0.75, 0.5]
    collect(read_runs([file, tmp_path / "new" / "0"]), file)
    assert len(read_runs([file])) == 3
