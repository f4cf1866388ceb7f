"""What a job knows of itself before its configuration is checked."""

import json

from oneshot_fl.launchers.task import number_kept


def test_a_single_run_in_the_folder_of_a_sweeps_job_keeps_its_number(tmp_path):
    assert number_kept(tmp_path) == {}
    (tmp_path / "run.json").write_text(json.dumps({"job": 3, "status": "failed"}))
    assert number_kept(tmp_path) == {"job": 3}
