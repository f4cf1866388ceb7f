"""On an accelerator: the same run works, with stacked clients and all classes stacked."""

import pytest
import torch

from oneshot_fl.pipeline import run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator"),
]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("method", ["fedavg", "dense", "fedhydra"])
def test_a_run_on_the_gpu(tiny, tmp_path, method, precision):
    summary = run(tiny(f"method={method}", "trainer=gpu", f"trainer.precision={precision}"), tmp_path / "run")
    assert 0 <= summary["server"]["accuracy_last"] <= 1
