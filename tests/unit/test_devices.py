"""Devices as they would be seen, and their lease among processes; no GPU is needed."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from oneshot_fl import devices
from oneshot_fl.devices import arithmetic_here, free_device, lease_device, visible_devices


@pytest.fixture
def no_lease(monkeypatch):
    """A process that holds no device and has not loaded torch."""
    monkeypatch.setattr(devices, "_held", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in (devices.VISIBLE, devices.ASSIGNED, "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    yield
    for lease in devices._held:
        lease.release()


@pytest.fixture(autouse=True)
def libraries(monkeypatch):
    """A function that says which of NVIDIA's libraries can be loaded: here its driver, as if there were GPUs."""
    there = {"libcuda.so.1"}
    is_there = devices._is_there
    monkeypatch.setattr(devices, "_is_there", lambda library: library in there)

    def only(*names):
        there.clear()
        there.update(names)

    only.really = is_there
    return only


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("0,1", ("0", "1")),
        ("3", ("3",)),
        ("", ()),
        ("-1", ()),
        ("0,-1,2", ("0",)),
        ("GPU-ab, GPU-cd", ("GPU-ab", "GPU-cd")),
    ],
)
def test_the_environment_says_what_is_visible_as_cuda_reads_it(monkeypatch, shown, expected):
    monkeypatch.setenv(devices.VISIBLE, shown)
    assert visible_devices() == expected


@pytest.mark.parametrize(
    ("there", "expected"), [((), ()), (("libcuda.so.1",), ("0",)), (("libnvidia-ml.so.1",), ("0",))]
)
def test_a_machine_without_nvidias_libraries_shows_no_device_whatever_the_environment_says(
    libraries, monkeypatch, there, expected
):
    monkeypatch.setenv(devices.VISIBLE, "0")
    libraries(*there)
    assert visible_devices() == expected


def test_a_library_is_there_if_it_can_be_loaded(libraries, monkeypatch):
    def load(name):
        if name != "libcuda.so.1":
            raise OSError(name)
        return object()

    monkeypatch.setattr("ctypes.CDLL", load)
    assert [libraries.really(name) for name in devices.NVIDIAS] == [True, False]


def test_without_a_word_every_device_of_the_machine_is(no_lease, monkeypatch):
    monkeypatch.setattr(devices, "_nvidia_devices", lambda: tuple("abcdefgh"))
    assert visible_devices() == tuple("01234567")


def test_devices_fill_evenly_and_come_back(tmp_path):
    leases = [free_device(("0", "1"), 2, tmp_path) for _ in range(4)]
    assert [lease.device for lease in leases] == ["0", "1", "0", "1"]
    assert free_device(("0", "1"), 2, tmp_path) is None
    leases[1].release()
    assert free_device(("0", "1"), 2, tmp_path).device == "1"


def test_the_device_with_the_fewest_jobs_is_next_whichever_ended(tmp_path):
    leases = [free_device(("0", "1"), 4, tmp_path) for _ in range(5)]
    for number in (0, 3):
        leases[number].release()
    assert [leases[number].device for number in (1, 2, 4)] == ["1", "0", "0"]
    assert free_device(("0", "1"), 4, tmp_path).device == "1"


def test_a_device_has_no_more_jobs_than_each_of_them_allows(tmp_path):
    alone = free_device(("0", "1"), 1, tmp_path)
    shared = [free_device(("0", "1"), 2, tmp_path) for _ in range(2)]
    assert [lease.device for lease in (alone, *shared)] == ["0", "1", "1"]
    assert free_device(("0", "1"), 4, tmp_path) is None


@pytest.fixture
def nvml(monkeypatch):
    """NVIDIA's management library of a machine with three GPUs, of which the last has a UUID that it does not tell."""
    uuids = (b"GPU-ab12-34", b"GPU-ab99-56")

    def count(found):
        found._obj.value = 3
        return 0

    def handle(index, found):
        found._obj.value = index.value + 1
        return 0

    def uuid(device, name, _):
        if device.value > len(uuids):
            return 999
        name.value = uuids[device.value - 1]
        return 0

    library = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlShutdown=lambda: 0,
        nvmlDeviceGetCount_v2=count,
        nvmlDeviceGetHandleByIndex_v2=handle,
        nvmlDeviceGetUUID=uuid,
    )
    monkeypatch.setattr("ctypes.CDLL", {"libnvidia-ml.so.1": library}.__getitem__)
    devices._nvidia_devices.cache_clear()
    yield
    devices._nvidia_devices.cache_clear()


@pytest.mark.parametrize("name", ["0", "GPU-ab12-34", "GPU-ab1"])
def test_a_device_is_leased_once_whatever_it_is_called(nvml, tmp_path, name):
    lease = free_device((name,), 1, tmp_path)
    assert lease.device == name  # as CUDA is told of it
    assert [free_device((other,), 1, tmp_path) for other in ("0", "GPU-ab12-34", "GPU-ab1")] == [None] * 3
    others = ("1", "2", "GPU-ab", "MIG-ab12", "7")
    assert [free_device((name, other), 1, tmp_path).device for other in others] == list(others)


HOLDS = """
import sys
from pathlib import Path
from oneshot_fl.devices import free_device
lease = free_device(("0", "1", "2"), 1, Path(sys.argv[1]))
print(lease.device, flush=True)
sys.stdin.read()
"""


def test_processes_get_a_device_each_and_one_that_is_killed_gives_it_back(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], env=path, **pipes) for _ in range(3)]
    try:
        assert sorted(process.stdout.readline().strip() for process in processes) == [b"0", b"1", b"2"]
        assert free_device(("0", "1", "2"), 1, tmp_path) is None
        processes[0].kill()
        processes[0].wait()
        assert free_device(("0", "1", "2"), 1, tmp_path) is not None
    finally:
        for process in processes:
            process.communicate()


def test_a_job_sees_the_device_that_it_leased_and_keeps_it(no_lease, monkeypatch, tmp_path):
    monkeypatch.setenv(devices.VISIBLE, "2,5")
    other = free_device(("2",), 1, tmp_path)
    assert lease_device("auto", 1, waiting=pytest.fail, folder=tmp_path) == "cuda:5"
    assert os.environ[devices.VISIBLE] == "5"
    other.release()
    assert lease_device("auto", 1, waiting=pytest.fail, folder=tmp_path) == "cuda:5"  # CUDA has read its environment


def test_it_says_what_it_waits_for(no_lease, monkeypatch, tmp_path):
    monkeypatch.setenv(devices.VISIBLE, "0")
    other, said = free_device(("0",), 1, tmp_path), []

    def waiting(line):
        said.append(line)
        other.release()

    assert lease_device("gpu", 1, waiting=waiting, folder=tmp_path) == "cuda:0"
    assert len(said) == 1
    assert "trainer.jobs_per_gpu=1" in said[0]


@pytest.mark.parametrize(
    ("accelerator", "environment", "expected"),
    [
        ("cpu", {devices.VISIBLE: "0,1"}, "cpu"),
        ("auto", {devices.VISIBLE: ""}, "cpu"),
        ("auto", {devices.VISIBLE: "3", devices.ASSIGNED: "1"}, "cuda:3"),  # Ray dealt it out
    ],
)
def test_nothing_is_leased_where_there_is_nothing_to_choose(
    no_lease, monkeypatch, tmp_path, accelerator, environment, expected
):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert lease_device(accelerator, 1, waiting=pytest.fail, folder=tmp_path / "locks") == expected
    assert not (tmp_path / "locks").exists()


@pytest.fixture
def driver(monkeypatch):
    """A function from what CUDA's driver answers to that driver, beside a torch that is loaded."""

    def answering(code):
        monkeypatch.setitem(sys.modules, "torch", object())
        found = SimpleNamespace(cuDeviceGetCount=lambda _: code)
        monkeypatch.setattr("ctypes.CDLL", {"libcuda.so.1": found}.__getitem__)
        monkeypatch.setattr(devices, "_nvidia_devices", lambda: ())  # whatever another test had remembered

    return answering


def test_nothing_is_leased_once_torch_has_looked(no_lease, driver, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(devices.VISIBLE, "0,1")
    driver(0)
    assert lease_device("auto", 1, waiting=pytest.fail, folder=tmp_path / "locks") == "cuda:0,1"
    assert not (tmp_path / "locks").exists()
    assert capsys.readouterr().err.startswith("oneshot_fl: CUDA has started in this process before: GPU 0 is used")


def test_a_job_after_one_on_the_cpu_leases_its_device_though_torch_is_loaded(no_lease, driver, monkeypatch, tmp_path):
    monkeypatch.setenv(devices.VISIBLE, "0,1")
    assert lease_device("cpu", 1, waiting=pytest.fail, folder=tmp_path) == "cpu"
    driver(3)  # not initialized
    other = free_device(("0",), 1, tmp_path)
    assert lease_device("gpu", 1, waiting=pytest.fail, folder=tmp_path) == "cuda:1"
    assert os.environ[devices.VISIBLE] == "1"
    other.release()


def test_jobs_of_slurm_do_not_take_each_others_devices_for_their_own(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    alone = devices._lock_folder()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    first = devices._lock_folder()
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert len({alone, first, devices._lock_folder()}) == 3


@pytest.mark.parametrize(
    ("trainer", "shown", "bf16", "expected"),
    [
        ({"accelerator": "auto", "precision": "auto"}, "", True, "cpu.bf16-mixed"),
        ({"accelerator": "auto", "precision": "auto"}, "", False, "cpu.32-true"),
        ({"accelerator": "auto", "precision": "auto"}, "0", True, "cuda.32-true"),
        ({"accelerator": "cpu", "precision": "32-true"}, "0", True, "cpu.32-true"),
    ],
)
def test_the_arithmetic_of_a_machine_is_known_without_torch(monkeypatch, trainer, shown, bf16, expected):
    monkeypatch.setenv(devices.VISIBLE, shown)
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: bf16)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert arithmetic_here(trainer) == expected
