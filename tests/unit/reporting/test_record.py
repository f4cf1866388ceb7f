import json

import pytest

from oneshot_fl.reporting.record import ERROR, TRACE, traced


def _trace(folder):
    return json.loads((folder / TRACE).read_text())


def test_a_trace_tells_how_the_run_stands_from_its_first_moment(tmp_path):
    with traced(tmp_path, {"method": "ot"}) as trace:
        assert _trace(tmp_path) == {"method": "ot", "status": "running"}
        trace.describe({"method": "ot", "seed": 1})
        assert _trace(tmp_path) == {"method": "ot", "seed": 1, "status": "running"}
    assert _trace(tmp_path)["status"] == "done"


def test_a_failure_leaves_its_line_and_its_traceback(tmp_path):
    with pytest.raises(RuntimeError), traced(tmp_path, {}):
        raise RuntimeError("no\nmemory")
    assert _trace(tmp_path) == {"status": "failed", "error": "no memory"}
    assert "RuntimeError" in (tmp_path / ERROR).read_text()


def test_an_interruption_is_no_failure(tmp_path):
    with pytest.raises(KeyboardInterrupt), traced(tmp_path, {}):
        raise KeyboardInterrupt
    assert _trace(tmp_path)["status"] == "interrupted"
    assert not (tmp_path / ERROR).exists()
