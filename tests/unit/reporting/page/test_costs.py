from oneshot_fl.reporting.page.costs import COSTS

LEDGER = {
    "clients": {"cpu_seconds": 3.0, "macs": 1e9, "peak_host_bytes": 5e6, "cpu_joules": None},
    "distill": {"cpu_seconds": 4.0, "macs": 2e9, "peak_host_bytes": 2e6, "cpu_joules": 1.0},
}


def test_seconds_are_there_in_every_summary():
    told = {"seconds": {"clients": 3.0, "stratify": 1.0, "distill": 2.0, "run": 60.0}}
    assert COSTS["server, s"](told) == 3.0
    assert COSTS["clients and server, s"](told) == 6.0


def test_the_ledger_is_read_where_there_is_one():
    assert COSTS["CPU, s"]({"cost": LEDGER}) == 7.0
    assert COSTS["GMACs"]({"cost": LEDGER}) == 3.0
    assert COSTS["memory, MB"]({"cost": LEDGER}) == 5.0  # of phases after one another the highest
    assert COSTS["CPU energy, kJ"]({"cost": LEDGER}) is None  # one phase does not know


def test_a_summary_that_tells_nothing_costs_nothing_known():
    assert {name: cost({}) for name, cost in COSTS.items()} == dict.fromkeys(COSTS)
