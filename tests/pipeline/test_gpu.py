"""On an accelerator: it is used, and learns what the CPU learns, with stacked clients and all classes stacked."""

import pytest
import torch

from tests.composing import clients_of, few_images, run_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator"),
]
LONGER = (
    "clients.epochs=15",
    "distill.rounds=12",
    "distill.generator_steps=5",
    "partition=iid",
    "evaluate.batch_size=64",
)


def _device_bytes(summary) -> int:
    """The most that any phase had on the device; CUDA's own peak begins anew with each of them."""
    return max(cost["peak_device_bytes"] or 0 for cost in summary["cost"].values())


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("method", ["fedavg", "dense", "fedhydra"])
def test_a_run_on_the_gpu_learns_what_one_on_the_cpu_learns(tiny, tmp_path, method, precision):
    overrides = (f"method={method}", f"trainer.precision={precision}", *LONGER)
    on_gpu = run_config(tiny(*overrides, "trainer=gpu"), tmp_path / "gpu")
    assert _device_bytes(on_gpu) > 1e6  # it did not fall back
    on_cpu = run_config(tiny(*overrides, "trainer=cpu"), tmp_path / "cpu")
    assert on_gpu["partition"] == on_cpu["partition"]
    assert on_gpu["ensemble"]["accuracy"] > 0.7
    assert on_gpu["ensemble"]["accuracy"] == pytest.approx(on_cpu["ensemble"]["accuracy"], abs=0.1)
    for gpu, cpu in zip(on_gpu["clients"], on_cpu["clients"], strict=True):
        assert gpu["accuracy"] == pytest.approx(cpu["accuracy"], abs=0.15)
    assert len(on_gpu["rounds"]) == len(on_cpu["rounds"])
    if on_gpu["rounds"]:
        assert on_gpu["rounds"][0]["generator"]["ce"] == pytest.approx(on_cpu["rounds"][0]["generator"]["ce"], rel=0.2)


@pytest.mark.parametrize("method", ["fedcvae_kd", "fedmho"])
def test_what_clients_decoders_draw_is_learned_from_on_the_gpu(tiny, tmp_path, method):
    overrides = (f"method={method}", "trainer.precision=32-true", *clients_of(method), *few_images(method))
    on_gpu = run_config(tiny(*overrides, "trainer=gpu"), tmp_path / "gpu")
    assert _device_bytes(on_gpu) > 1e6  # it did not fall back
    on_cpu = run_config(tiny(*overrides, "trainer=cpu"), tmp_path / "cpu")
    first, expected = (summary["rounds"][0]["student"]["ce"] for summary in (on_gpu, on_cpu))
    assert first == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("method", ["dense", "co_boosting", "fedhydra", "fedchorus"])
def test_steps_replayed_as_a_graph_are_those_of_python(tiny, tmp_path, method, precision):
    moved = ["method.perturb.colour_only=false"] if method == "fedchorus" else []  # grey images would stay as they are
    overrides = (f"method={method}", "trainer=gpu", f"trainer.precision={precision}", *LONGER, "stratify.steps=6")
    replayed, plain = (
        run_config(
            tiny(*overrides, *moved, f"trainer.cuda_graphs={graphs}", f"store={tmp_path / graphs / 'store'}"),
            tmp_path / graphs,
        )
        for graphs in ("true", "false")
    )
    for phase in ("stratify", "distill"):
        assert replayed["cost"][phase]["macs"] == plain["cost"][phase]["macs"]
    assert len(replayed["rounds"]) == 12
    for who in ("generator", "student"):
        first, last = (
            [summary["rounds"][at][who] for summary in (replayed, plain)] for at in (0, -1)
        )  # rounding adds up over rounds: some kernels of a GPU add in any order
        assert first[0] == pytest.approx(first[1], rel=0.02)
        assert last[0] == pytest.approx(last[1], rel=0.2, abs=0.05)


@pytest.mark.parametrize("optimizer", ["RMSprop", "NAdam", "Adam"])
def test_an_optimiser_that_counts_its_steps_goes_from_single_steps_to_a_graph(tiny, tmp_path, optimizer):
    """One batch enters the pool every round, and four steps make a graph: in the fourth round."""
    chosen = (f"distill.student_optimizer._target_=torch.optim.{optimizer}", "~distill.student_optimizer.momentum")
    summary = run_config(tiny("method=dense", "trainer=gpu", *LONGER, *chosen), tmp_path)
    assert len(summary["rounds"]) == 12
