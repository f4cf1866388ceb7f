import json
import mmap
import subprocess
import sys
import time
from dataclasses import asdict
from types import SimpleNamespace

from oneshot_fl import ledger
from oneshot_fl.ledger import NOTHING, Cost, Meter, beside_others, cost_of, total

MEGABYTE = 2**20


def test_sums_add_up_and_peaks_do_not():
    first = Cost(1.0, 2.0, 30, 4, 5.0, 6.0, 7)
    second = Cost(10.0, 20.0, 3, 40, 50.0, 60.0, 70)
    assert total([first, second]) == Cost(11.0, 22.0, 30, 40, 55.0, 66.0, 77)
    assert total([]) == NOTHING


def test_one_unknown_part_makes_the_sum_unknown():
    assert total([Cost(1.0, cpu_joules=None), Cost(2.0, cpu_joules=3.0)]) == Cost(3.0, cpu_joules=None)


def test_a_cost_survives_json_and_what_was_never_told_is_unknown():
    cost = Cost(1.0, 2.0, 3, 4, None, 6.0, 7)
    assert cost_of(json.loads(json.dumps(asdict(cost)))) == cost
    assert cost_of({"seconds": 2.5}) == Cost(2.5, None, None, None, None, None, None)


def test_seconds_of_waiting_are_not_seconds_of_the_processor():
    meter = Meter()
    time.sleep(0.05)
    spent = meter.spent(macs=9)
    assert spent.seconds >= 0.05
    assert spent.cpu_seconds < spent.seconds
    assert spent.macs == 9


def test_what_an_ended_worker_spent_is_not_spent_here():
    meter = Meter()
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert meter.spent().cpu_seconds < 0.25


def _use(size: int) -> None:
    """Touch pages that are new to this process, and give them back: what was freed before may still be resident."""
    with mmap.mmap(-1, size) as memory:
        memory[:] = bytes(size)


def test_every_meter_has_the_peak_of_its_own_time():
    outer = Meter()
    _use(64 * MEGABYTE)
    first = outer.spent().peak_host_bytes
    inner = Meter()
    assert outer.spent().peak_host_bytes >= first
    small = inner.spent().peak_host_bytes
    _use(128 * MEGABYTE)
    assert inner.spent().peak_host_bytes >= small + 100 * MEGABYTE
    assert outer.spent().peak_host_bytes == inner.spent().peak_host_bytes


def test_where_peaks_cannot_begin_anew_they_are_those_since_the_process_began(monkeypatch, tmp_path):
    monkeypatch.setattr(ledger, "RESET_PEAK", tmp_path)  # a folder cannot be written
    monkeypatch.setattr(ledger, "STATUS", tmp_path / "missing")
    assert Meter().spent().peak_host_bytes > 10 * MEGABYTE


def test_what_was_drawn_beside_others_is_not_known(monkeypatch):
    monkeypatch.setattr(ledger, "CPU_ENERGY", SimpleNamespace(read=lambda: 1.0, since=lambda before: before and 3.0))
    with beside_others():
        shared = Meter()
    alone = Meter()
    assert (shared.spent().cpu_joules, alone.spent().cpu_joules) == (None, 3.0)
