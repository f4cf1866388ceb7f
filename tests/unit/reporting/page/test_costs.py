from oneshot_fl.reporting.page.costs import COSTS

LEDGER = {
    "clients": {"cpu_seconds": 3.0, "macs": 1e9, "peak_host_bytes": 5e6, "cpu_joules": None, "gpu_joules": 0.0},
    "distill": {"cpu_seconds": 4.0, "macs": 2e9, "peak_host_bytes": 2e6, "cpu_joules": 1.0, "gpu_joules": 0.0},
    "evaluate": {"cpu_seconds": 100.0, "macs": 100e9, "peak_host_bytes": 9e9, "cpu_joules": 1.0, "gpu_joules": 0.0},
}


def test_seconds_are_there_in_every_summary():
    told = {"seconds": {"clients": 3.0, "stratify": 1.0, "distill": 2.0, "run": 60.0}, "clients": []}
    assert COSTS["seconds, server"](told) == 3.0
    assert COSTS["seconds, clients and server"](told) == 6.0


def test_the_ledger_counts_clients_and_server_and_no_test():
    assert COSTS["CPU seconds"]({"cost": LEDGER}) == 7.0
    assert COSTS["multiply-accumulates (10⁹)"]({"cost": LEDGER}) == 3.0
    assert COSTS["peak memory, host (MB)"]({"cost": LEDGER}) == 5.0  # of phases after one another the highest


def test_what_a_phase_does_not_know_nobody_knows():
    assert COSTS["energy (kJ)"]({"cost": LEDGER}) is None
    assert COSTS["peak memory, device (MB)"]({"cost": LEDGER}) is None


def test_a_summary_that_tells_nothing_costs_nothing_known():
    assert {name: cost({"clients": [{}]}) for name, cost in COSTS.items()} == dict.fromkeys(COSTS)


def test_uploads_are_those_of_all_clients():
    told = {"clients": [{"upload_bytes": 1_000_000}, {"upload_bytes": 500_000}]}
    assert COSTS["uploads of all clients (MB)"](told) == 1.5
