"""The main job at its real size: slow, but it is what everybody runs first."""

import pytest

from tests.composing import compose_config
from tests.composing import run_config as run


@pytest.mark.slow
def test_the_demo_learns(tmp_path):
    summary = run(compose_config(f"store={tmp_path / 'store'}", "trainer=cpu"), tmp_path / "run")
    # 92.8% when it was written; a broken part of the loop falls far below this
    assert summary["server"]["accuracy_last"] > 0.8
    assert summary["ensemble"]["rows"]["probability"] > 0.9
