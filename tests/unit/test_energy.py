import sys
from types import SimpleNamespace

import pytest

from oneshot_fl import energy
from oneshot_fl.energy import CpuEnergy, gpu_joules


def _package(folder, number, microjoules, around=10**9, *, name="package"):
    place = folder / f"intel-rapl:{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "name").write_text(f"{name}-{number}\n")
    (place / "energy_uj").write_text(f"{microjoules}\n")
    (place / "max_energy_range_uj").write_text(f"{around}\n")


def test_packages_add_up_and_neither_their_parts_nor_the_platform_count(tmp_path):
    others = {"0:0": "core", 2: "psys"}
    _package(tmp_path, 0, 1_000_000)
    _package(tmp_path, 1, 500_000)
    for number, name in others.items():
        _package(tmp_path, number, 0, name=name)
    counter = CpuEnergy(tmp_path)
    begun = counter.read()
    assert counter.since(begun) == 0
    _package(tmp_path, 0, 3_000_000)
    _package(tmp_path, 1, 600_000)
    for number, name in others.items():
        _package(tmp_path, number, 900_000, name=name)
    assert counter.since(begun) == pytest.approx(2.1)


def test_a_counter_that_went_round_once_is_understood(tmp_path):
    _package(tmp_path, 0, 999_999_990)
    counter = CpuEnergy(tmp_path)
    begun = counter.read()
    _package(tmp_path, 0, 9)
    assert counter.since(begun) == pytest.approx(20e-6)


def test_after_too_long_a_silence_what_lies_before_it_is_not_known_and_what_follows_is(tmp_path, monkeypatch):
    _package(tmp_path, 0, 5)
    counter, now = CpuEnergy(tmp_path), [0.0]
    monkeypatch.setattr(energy.time, "monotonic", lambda: now[0])
    begun = counter.read()
    now[0] = 1.1  # at 1,000 W the counter of 1,000 J may have gone round
    assert counter.since(begun) is None
    assert counter.since(begun) is None
    anew = counter.read()
    _package(tmp_path, 0, 3_000_005)
    assert counter.since(anew) == pytest.approx(3)
    assert counter.since(begun) is None


def test_whoever_is_asked_in_between_may_be_measured_for_long(tmp_path, monkeypatch):
    _package(tmp_path, 0, 0)
    counter, now = CpuEnergy(tmp_path), [0.0]
    monkeypatch.setattr(energy.time, "monotonic", lambda: now[0])
    begun = counter.read()
    for second in range(1, 5):
        now[0] = 0.9 * second
        _package(tmp_path, 0, 800_000_000 * second % (10**9 + 1))
        counter.read()
    assert counter.since(begun) == pytest.approx(3_200)


def test_a_reading_that_fails_is_made_up_for_by_the_next(tmp_path):
    _package(tmp_path, 0, 5)
    counter = CpuEnergy(tmp_path)
    begun = counter.read()
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert counter.since(begun) is None
    assert counter.read() is None
    _package(tmp_path, 0, 2_000_005)
    assert counter.since(begun) == pytest.approx(2)


def test_a_machine_that_does_not_tell(tmp_path):
    assert CpuEnergy(tmp_path).since(CpuEnergy(tmp_path).read()) is None
    (tmp_path / "intel-rapl:0").mkdir()
    assert CpuEnergy(tmp_path).since(CpuEnergy(tmp_path).read()) is None  # as where only root may read


def test_a_board_tells_in_millijoules(monkeypatch):
    class NVMLError(Exception):
        pass

    told = {"GPU-abc": 7_500}
    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=lambda board: told[board],
    )
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 0,
        get_device_properties=lambda _: SimpleNamespace(uuid="abc"),
    )
    energy._board.cache_clear()
    assert gpu_joules() is None  # no board is in use
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert gpu_joules() == 7.5
    energy._board.cache_clear()
