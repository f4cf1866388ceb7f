"""Ray's options, which are looked at before a cluster is."""

import pytest

from oneshot_fl.errors import OneshotError

rays = pytest.importorskip("oneshot_fl.launchers.rays", reason="pip install 'oneshot-fl[ray]'")


@pytest.mark.parametrize("option", ["cpus", "here", "at_once"])
@pytest.mark.parametrize("value", [0, -1, "abc", 0.5])
def test_a_wrong_number_is_one_line_before_a_cluster_is_started(monkeypatch, option, value):
    monkeypatch.setattr(rays.ray, "init", lambda **_: pytest.fail("a cluster was started"))
    with pytest.raises(OneshotError, match=rf"hydra\.launcher\.{option}={value}: must be a number of "):
        rays.Rays(**{option: value})


@pytest.fixture
def cluster(monkeypatch):
    """A function from machines' resources to a cluster of them."""

    def of(*machines):
        monkeypatch.setattr(rays.ray, "init", lambda **_: None)
        gone = {"Alive": False, "Resources": {"CPU": 512.0, "GPU": 8.0}}
        monkeypatch.setattr(rays.ray, "nodes", lambda: [gone, *({"Alive": True, "Resources": m} for m in machines)])

    return of


@pytest.mark.parametrize(
    ("machines", "options", "at_once"),
    [
        ([{"CPU": 8.0}, {"CPU": 3.0}], {"cpus": 2}, 5),
        ([{"CPU": 8.0}, {"CPU": 3.0}], {"cpus": 8}, 1),
        ([{"CPU": 8.0}], {"cpus": 2, "at_once": 1}, 1),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 64.0}], {"cpus": 8, "jobs_per_gpu": 3}, 6),
        ([{"CPU": 8.0, "GPU": 2.0}], {"cpus": 4, "jobs_per_gpu": 0}, 2),
    ],
)
def test_there_is_room_for_what_some_machine_has_room_for(cluster, machines, options, at_once):
    cluster(*machines)
    assert rays.Rays(**options).at_once == at_once


@pytest.mark.parametrize(
    ("machines", "options", "line"),
    [
        ([{"CPU": 2.0}] * 4, {"cpus": 3}, r"cpus=3: .*one of its machines \(2\)"),
        ([{"CPU": 2.0}], {"cpus": 64, "at_once": 2}, r"cpus=64: .*one of its machines \(2\)"),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 64.0}], {"cpus": 64}, r"cpus=64: .*one of its machines with GPUs \(8\)"),
        ([], {}, r"cpus=1: .*\(0\)"),
    ],
)
def test_what_ray_would_wait_for_in_vain_is_refused(cluster, machines, options, line):
    cluster(*machines)
    with pytest.raises(OneshotError, match=line):
        rays.Rays(**options)


def test_a_cluster_that_may_grow_is_waited_for_with_a_word(cluster, capsys):
    cluster({"CPU": 0.0})
    assert rays.Rays(address="auto", cpus=4, at_once=64).at_once == 64
    assert "hydra.launcher.cpus=4: more than the cluster has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "line"),
    [
        (None, "^hydra/launcher=ray: no cluster could be started here .*too slow"),
        ("auto", "^hydra.launcher.address=auto: no such Ray cluster .*too slow"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(monkeypatch, address, line):
    def fail(**_):
        raise RuntimeError("too slow")

    monkeypatch.setattr(rays.ray, "init", fail)
    with pytest.raises(OneshotError, match=line):
        rays.Rays(address=address)


@pytest.mark.parametrize(("mode", "told"), [(None, True), ("token", False)])
def test_whoever_shows_no_token_is_told_how(monkeypatch, mode, told):
    def fail(**_):
        raise ConnectionError("Failed to connect")

    monkeypatch.setattr(rays.ray, "init", fail)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(OneshotError, match="Failed to connect") as refused:
        rays.Rays(address="head:6379")
    assert ("RAY_AUTH_MODE=token" in str(refused.value)) == told
