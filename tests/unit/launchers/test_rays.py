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
