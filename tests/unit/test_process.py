import os

import pytest

from oneshot_fl.process import MALLOPT, keep_freed_memory, share_the_cores


@pytest.fixture
def environment(monkeypatch):
    for name in (
        "GOMP_SPINCOUNT",
        "OMP_WAIT_POLICY",
        "MALLOC_TRIM_THRESHOLD_",
        "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TOP_PAD_",
    ):
        monkeypatch.setenv(name, "unset")  # so that what a test leaves is undone
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(("given", "expected"), [({}, "5000"), ({"OMP_WAIT_POLICY": "active"}, None)])
def test_threads_give_their_core_away_unless_told_otherwise(environment, given, expected):
    for name, value in given.items():
        environment.setenv(name, value)
    share_the_cores()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


class Glibc:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[int, int] = {}

    def mallopt(self, parameter: int, value: int) -> None:
        self.told[parameter] = value


@pytest.mark.parametrize(
    ("platform", "given", "told"), [("linux", {}, 3), ("darwin", {}, 0), ("linux", {"MALLOC_TOP_PAD_": "0"}, 0)]
)
def test_only_glibc_is_told_to_keep_memory_and_the_users_settings_win(environment, platform, given, told):
    library = Glibc()
    environment.setattr("oneshot_fl.process.ctypes.CDLL", lambda _: library)
    environment.setattr("oneshot_fl.process.sys.platform", platform)
    for name, value in given.items():
        environment.setenv(name, value)
    keep_freed_memory()
    assert len(library.told) == told
    assert library.told.items() <= set(MALLOPT.values())
