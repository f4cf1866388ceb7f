import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from oneshot_fl.phases.trainer import make_trainer


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
    trainer = make_trainer({"accelerator": "cpu", "channels_last": channels_last})
    trainer.test(module, torch.zeros(2, 1, channels, 8, 8), verbose=False)
    assert module.output.is_contiguous(memory_format=torch.channels_last) is channels_last
    assert module.output.is_contiguous() is not channels_last
