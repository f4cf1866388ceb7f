import errno
import subprocess
import sys
from pathlib import Path

import pytest

from oneshot_fl import locks
from oneshot_fl.locks import LEASED, holder, is_free, lock_of, needs_leases

AWAY = """
import os, signal, socket, sys
if sys.argv[2:]:
    socket.gethostname = lambda: sys.argv[2]
from filelock import SoftFileLease
lock = SoftFileLease(sys.argv[1], lease_duration=0.5)
lock.acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A process that takes a lease and dies, perhaps on another machine."""


def _no_flock(number: int, name: str = "flock"):
    def fail(*_):
        raise OSError(number, "not here")

    return f"fcntl.{name}", fail


@pytest.mark.parametrize("leased", [False, True])
def test_a_lock_has_one_holder(tmp_path, leased):
    first, second = (lock_of(tmp_path / "x.lock", leased=leased) for _ in range(2))
    assert is_free(first)
    assert not is_free(second)
    first.release()
    assert is_free(second)
    second.release()


def test_what_a_flock_leaves_behind_holds_no_lease(tmp_path):
    before, after = (lock_of(tmp_path / "x.lock", leased=leased) for leased in (False, True))
    for lock in (before, after):
        assert is_free(lock)
        lock.release()


def test_an_ordinary_folder_needs_no_leases_and_keeps_no_probe(tmp_path):
    assert not needs_leases(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_folder_without_flock_is_leased_for_everybody_from_then_on(tmp_path, monkeypatch, number):
    with monkeypatch.context() as patch:
        patch.setattr(*_no_flock(number))
        assert needs_leases(tmp_path)
    assert needs_leases(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LEASED]


def test_another_failure_of_flock_is_not_taken_for_its_absence(tmp_path, monkeypatch):
    monkeypatch.setattr(*_no_flock(errno.EIO))
    with pytest.raises(OSError, match="not here"):
        needs_leases(tmp_path)
    assert not list(tmp_path.iterdir())


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:50 / /group rw,relatime shared:2 - nfs4 server:/a rw,vers=4.2,local_lock={lock}
31 30 0:51 / /group/our\\040results rw - lustre fs rw{flock}
32 22 0:52 / /données rw - nfs4 server:/b rw,local_lock={lock}
"""


@pytest.mark.parametrize(
    ("folder", "lock", "flock", "leases"),
    [
        ("/home/me", "all", ",localflock", False),
        ("/group/me", "none", "", False),
        ("/group/me", "flock", "", True),
        ("/group/me", "all", "", True),
        ("/group/our results/x", "all", ",flock", False),
        ("/group/our results", "none", ",localflock", True),
        ("/données/x", "all", "", True),
    ],
)
def test_a_flock_that_other_machines_do_not_see_is_none(tmp_path, monkeypatch, folder, lock, flock, leases):
    monkeypatch.setattr(locks, "MOUNTS", tmp_path / "mountinfo")
    locks.MOUNTS.write_text(MOUNTS.format(lock=lock, flock=flock))
    assert locks._flock_is_local(Path(folder)) == leases


@pytest.mark.parametrize("host", [[], ["far-away"]], ids=["here", "on another machine"])
def test_the_lease_of_a_holder_that_died_is_taken_over(tmp_path, monkeypatch, host):
    monkeypatch.setattr(locks, "LEASE", 0.5)
    path = tmp_path / "x.lease"
    assert subprocess.run([sys.executable, "-c", AWAY, path, *host], check=False).returncode == -9
    assert path.exists()
    lock = lock_of(tmp_path / "x.lock", leased=True)
    lock.acquire(timeout=30)
    assert lock.is_locked
    lock.release()


def test_the_holder_is_told_by_process_and_machine():
    assert holder().startswith("process ")
    assert " on " in holder()
