import json
import os

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.record import facts, traced
from oneshot_fl.reporting.tables.runs import collect, read_runs
from tests.conftest import compose_config


def _summary(path, **changes):
    path.mkdir(parents=True)
    told = {**facts(compose_config("method=fedavg")), **changes, "server": {"accuracy_last": 0.5}}
    (path / "summary.json").write_text(json.dumps(told))
    return path / "summary.json"


def test_runs_are_found_at_any_depth_and_the_newest_of_two_alike_counts(tmp_path):
    old, new = _summary(tmp_path / "a"), _summary(tmp_path / "b" / "c", study="again")
    _summary(tmp_path / "d", seed=1)
    os.utime(old, (1, 1))
    os.utime(new, (2, 2))
    runs = read_runs([tmp_path])
    assert [(run.seed, run.study) for run in runs] == [(0, "again"), (1, "fedavg")]
    assert all(run.status == "done" for run in runs)


def test_a_killed_and_a_failed_run_are_known_by_their_trace(tmp_path):
    with pytest.raises(RuntimeError), traced(compose_config("method=dense"), tmp_path / "failed"):
        raise RuntimeError("no\nmemory")
    with traced(compose_config("method=ot"), tmp_path / "killed"):
        (told,) = read_runs([tmp_path / "killed"])  # while it runs, and for ever if it is killed
    assert (told.method, told.status) == ("ot", "unfinished")
    (told,) = read_runs([tmp_path / "failed"])
    assert (told.method, told.status, told.error, told.summary) == ("dense", "failed", "no memory", None)


def test_facts_tell_what_was_changed_in_the_method(tmp_path):
    told = facts(compose_config("method=fedhydra", "method.objective.adv.weight=0.5", "generator.width=8"))
    assert told["changed"] == {"objective.adv.weight": 0.5}
    assert told["settings"]["generator"]["width"] == 8
    assert facts(compose_config("method=co_boosting", "method.perturb=null"))["changed"]["perturb"] is None


def test_facts_name_no_place_on_the_machine():
    text = json.dumps(facts(compose_config("data=mnist", "data.root=/some/where", "store=/else/where")))
    assert "/some" not in text
    assert "/else" not in text


def test_collected_runs_are_read_back_without_what_no_table_shows(tmp_path):
    rounds = [{"round": 1, "accuracy": 0.25, "student": {"kl": 0.1}}]
    _summary(tmp_path / "a", rounds=rounds)
    _summary(tmp_path / "b", seed=1, rounds=[])
    collect(read_runs([tmp_path]), tmp_path / "all.jsonl")
    runs = read_runs([tmp_path / "all.jsonl"])
    assert [run.seed for run in runs] == [0, 1]
    assert runs[0].summary["rounds"] == [{"round": 1, "accuracy": 0.25}]
    (tmp_path / "all.jsonl").write_text("{}\n")
    with pytest.raises(OneshotError, match=r"all.jsonl, line 1: not what this version writes"):
        read_runs([tmp_path / "all.jsonl"])


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}'])
def test_what_is_no_summary_is_refused_by_name(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(OneshotError, match=r"summary.json: not what this version writes"):
        read_runs([tmp_path])


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(OneshotError, match=r"no summary.json in or below it"):
        read_runs([tmp_path])


def test_partition_spread_and_proxy_as_tables_name_them(make_run):
    assert make_run().spread == "0.1"
    assert make_run(settings={"partition": {"name": "classes_per_client", "classes": 2}}).spread == "2"
    assert make_run(settings={"partition": {"name": "leave_one_domain_out", "held_out": "photo"}}).spread == "photo"
    assert make_run(settings={"partition": {"name": "iid"}}).spread == ""
    assert (make_run().proxy, make_run().holds_out) == ("", False)
    source = {"source": {"_target_": "oneshot_fl.parts.sources.ProxySource"}}
    assert make_run(settings={"method": source}).proxy == "noise 10000"
    held_out = make_run(settings={"method": source, "proxy": {"name": "holdout", "samples": None, "fraction": 0.2}})
    assert (held_out.proxy, held_out.holds_out) == ("holdout 0.2", True)
