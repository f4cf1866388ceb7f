from dataclasses import replace

import pytest

from oneshot_fl.reporting.tables.cost import cost_sheets


def _entry(**known):
    unknown = {"cpu_joules": None, "gpu_joules": 0.0, "peak_device_bytes": 0, "download_bytes": 0}
    return {"seconds": 0.0, "cpu_seconds": 0.0, "peak_host_bytes": 0, "macs": 0, "upload_bytes": 0, **unknown, **known}


@pytest.fixture
def with_cost(make_run):
    def make(seconds, **named):
        run = make_run(**named)
        clients = _entry(seconds=10.0, peak_host_bytes=3_000_000, upload_bytes=2_000_000, macs=5 * 10**9)
        ledger = {"clients": clients, "distill": _entry(seconds=seconds, peak_host_bytes=4_000_000)}
        return replace(run, summary={**run.summary, "cost": ledger})

    return make


def test_costs_are_means_over_seeds_and_peaks_the_highest_of_the_phases(with_cost):
    (sheet,) = cost_sheets([with_cost(100.0, seed=0), with_cost(300.0, seed=1), with_cost(50.0, method="dense")])
    assert [record["row"] for record in sheet.records] == ["dense", "fedhydra"]
    dense, fedhydra = sheet.records
    assert (fedhydra["n"], fedhydra["clients, s"], fedhydra["distill, s"], fedhydra["all, s"]) == (2, 10, 200, 210)
    assert (dense["memory, MB"], dense["GMACs"], dense["upload, MB"]) == (4, 5, 2)


def test_what_nobody_knows_has_no_column_and_what_one_does_not_know_is_a_dash(with_cost):
    known = with_cost(1.0)
    measured = {phase: {**entry, "cpu_joules": 500.0} for phase, entry in known.summary["cost"].items()}
    (alone,) = cost_sheets([known])
    assert not {"CPU energy, kJ", "GPU energy, kJ", "device memory, MB", "download, MB"} & set(alone.header)
    other = replace(known, summary={**known.summary, "cost": measured})
    (both,) = cost_sheets([with_cost(1.0, method="dense"), other])
    energy = both.header.index("CPU energy, kJ")
    assert [row[energy] for row in both.rows] == ["–", "1"]


def test_a_peak_is_not_known_where_that_of_a_phase_is_not(with_cost):
    known = with_cost(1.0)
    cost = known.summary["cost"]
    unknown = {**cost, "clients": {**cost["clients"], "peak_host_bytes": None}}
    other = replace(known, summary={**known.summary, "cost": unknown})
    (sheet,) = cost_sheets([with_cost(1.0, method="dense"), other])
    memory = sheet.header.index("memory, MB")
    assert [row[memory] for row in sheet.rows] == ["4", "–"]


def test_runs_that_do_not_tell_are_counted(make_run, with_cost):
    (sheet,) = cost_sheets([make_run(seed=1), with_cost(1.0)])
    assert sheet.records[0]["n"] == 1
    assert sheet.notes[1].startswith("1 finished runs of earlier versions")
