import gc
import sys
import weakref
from dataclasses import replace

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.phases.trainer import cpu_has_bf16, make_trainer, minimise, precision_here, trainer_of
from tests.parts import CPU


class OneConvolution(LightningModule):
    """Notes the layout of a convolution's output while it is tested."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3)
        self.stacked = nn.Parameter(torch.zeros(2, 4, channels, 3, 3))

    def test_step(self, batch, batch_idx):
        self.output = self.conv(batch)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("channels_last", [True, False])
def test_outputs_of_convolutions_have_the_layout_that_was_asked_for(channels, channels_last):
    module = OneConvolution(channels)
    trainer = make_trainer(replace(CPU, channels_last=channels_last))
    trainer.test(module, torch.zeros(2, 1, channels, 8, 8), verbose=False)
    assert module.output.is_contiguous(memory_format=torch.channels_last) is channels_last
    assert module.output.is_contiguous() is not channels_last


@pytest.mark.parametrize(
    ("flags", "expected"), [("fma avx512f avx512_bf16 avx2", True), ("amx_bf16", True), ("avx512f avx512_bf1", False)]
)
def test_a_cpu_tells_whether_it_multiplies_bf16(tmp_path, flags, expected):
    (tmp_path / "cpuinfo").write_text(f"model name : any\nflags : {flags}\n")
    assert cpu_has_bf16(tmp_path / "cpuinfo") is expected
    assert not cpu_has_bf16(tmp_path / "missing")


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16-mixed"), (False, "32-true")])
def test_auto_is_what_the_cpu_is_fastest_with(monkeypatch, has_bf16, expected):
    monkeypatch.setattr("oneshot_fl.phases.trainer.cpu_has_bf16", lambda: has_bf16)
    assert precision_here(replace(CPU, precision="auto")) == expected
    assert precision_here(replace(CPU, precision="64-true")) == "64-true"
    assert replace(CPU, precision="auto").resolved() == replace(CPU, precision=expected)


@pytest.mark.skipif(torch.cuda.is_available(), reason="auto is the GPU there, which computes so")
@pytest.mark.parametrize("accelerator", ["cpu", "auto"])
def test_what_lightning_swaps_for_bf16_on_a_cpu_is_refused(accelerator):
    with pytest.raises(OneshotError, match=r"^trainer.precision=16-mixed: .*CPU.*trainer.precision=bf16-mixed"):
        replace(CPU, accelerator=accelerator, precision="16-mixed").resolved()


def test_each_trainer_sets_the_precision_of_matrix_products_anew():
    make_trainer(replace(CPU, matmul_precision="medium"))
    assert torch.get_float32_matmul_precision() == "medium"
    make_trainer(CPU)
    assert torch.get_float32_matmul_precision() == "highest"


def test_convolutions_are_as_precise_as_matrix_products_in_each_run_of_a_process():
    for precision, rounded in (("highest", False), ("high", True), ("medium", True), ("highest", False)):
        make_trainer(replace(CPU, matmul_precision=precision))
        assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == (rounded, rounded)


class TwoSteps(LightningModule):
    """Asks its model before and after a change of its weights, all in one training step."""

    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(1, 1, bias=False)

    def training_step(self, batch, batch_idx):
        self.answers = [self.model(batch).item()]
        with torch.no_grad():
            self.model.weight.fill_(8.0)
        self.answers.append(self.model(batch).item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_mixed_precision_sees_weights_that_changed_within_a_training_step():
    """torch's autocast may keep its bf16 copies of weights until it ends, which here is a whole round or epoch."""
    module = TwoSteps()
    nn.init.ones_(module.model.weight)
    trainer = make_trainer(replace(CPU, precision="bf16-mixed"))
    trainer.fit(module, torch.ones(1, 1, 1))
    assert module.answers == [1.0, 8.0]


class OneWeight(LightningModule):
    """Trains one number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0]))

    def training_step(self, batch, batch_idx):
        return (self.weight * batch).sum()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


@pytest.mark.parametrize("interrupted", [False, True])
def test_nothing_of_a_trainer_is_left_after_its_call(interrupted):
    """Without a garbage collection, so nothing may refer to itself."""
    gc.disable()
    try:
        seen = _train_one_weight(batches=["no number"] if interrupted else [1.0])
        assert [reference() for reference in seen] == [None, None, None]
    finally:
        gc.enable()


def _train_one_weight(*, batches):
    module = OneWeight()
    seen = [weakref.ref(module), weakref.ref(module.weight)]
    try:
        with trainer_of(module, CPU) as trainer:
            seen.append(weakref.ref(trainer))
            trainer.fit(module, train_dataloaders=batches)
    except TypeError:
        assert batches == ["no number"]
    return seen


def _stopped():
    raise KeyboardInterrupt


def _as_lightning_does():
    try:
        _stopped()
    except KeyboardInterrupt:
        sys.exit(1)


def test_what_a_library_made_of_ctrl_c_is_one_again():
    with pytest.raises(KeyboardInterrupt), trainer_of(OneWeight(), CPU):
        _as_lightning_does()
    with pytest.raises(SystemExit, match="3"), trainer_of(OneWeight(), CPU):
        sys.exit(3)


def test_sigterm_ends_a_program_that_has_no_handler_for_it_with_143():
    """Lightning's own exception would end it with 0, as if all were well."""
    with pytest.raises(SystemExit) as end, trainer_of(OneWeight(), CPU):
        raise SIGTERMException
    assert end.value.code == 143


def test_a_loss_that_nothing_trained_has_a_part_in_is_one_line():
    with pytest.raises(OneshotError, match=r"^method\.objective, .*: the loss has no gradient"):
        minimise(OneWeight(), torch.tensor(1.0), None)
    with pytest.raises(OneshotError, match=r"^clients: nothing is trained$"):
        minimise(OneWeight(), torch.tensor(1.0), None, untrained="clients: nothing is trained")
