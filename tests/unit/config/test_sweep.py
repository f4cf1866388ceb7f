"""A sweep's last line, and the names of its folders."""

import json
import os
import time

from oneshot_fl.config.sweep import folder_name, last_line


def _job(folder, status, *, age=0.0):
    folder.mkdir(parents=True)
    trace = folder / "run.json"
    trace.write_text(json.dumps({"status": status}))
    os.utime(trace, (time.time() - age,) * 2)


def test_the_last_line_counts_jobs_and_names_the_folders_of_those_not_done(tmp_path):
    began = time.time() - 10
    for name, status in {"0": "done", "1": "failed", "2": "done", "3": "failed", "4": "interrupted"}.items():
        _job(tmp_path / name, status)
    _job(tmp_path / "old", "failed", age=100)
    expected = f"2 done, 2 failed: {tmp_path / '1'}, {tmp_path / '3'}, 1 interrupted: {tmp_path / '4'}"
    assert last_line(tmp_path, began) == expected


def test_a_folder_is_named_by_what_was_chosen():
    assert folder_name("method=dense,seed=1") == "method=dense,seed=1"
    assert folder_name("model.names=[cnn2,lenet5],x='a/b c'") == "model.names=_cnn2,lenet5_,x=_a_b_c_"
    long = [folder_name("a" * 300 + end) for end in "bc"]
    assert max(map(len, long)) <= 160
    assert long[0] != long[1]
