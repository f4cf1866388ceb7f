"""A server that looks at the corner alone falls for the trigger every time, one that does not look never."""

import torch
from torch import nn

from oneshot_fl.data.dataset import Dataset
from oneshot_fl.parts.attacks import Backdoor
from oneshot_fl.phases.backdoor import backdoor_success
from tests.parts import SMALL, FixedLogits


class Corner(nn.Module):
    """Class 2 where the lower right pixel is white, else class 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        white = (x[:, 0, -1, -1] > 0.99).float()
        return torch.stack([1 - white, torch.zeros_like(white), white], dim=1)


class Marked(nn.Module):
    """Class 2 where the upper left pixel is white, else class 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        white = (x[:, 0, 0, 0] > 0.99).float()
        return torch.stack([1 - white, torch.zeros_like(white), white], dim=1)


def test_only_images_of_other_classes_count_and_they_carry_the_trigger(context):
    images, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 2, 2])
    images[2:, 0, 0, 0] = 255
    data = Dataset("zeros", SMALL, ("a", "b", "c"), images, labels, images, labels)
    backdoor = Backdoor(clients=1, target=2, side=0.2, share=0.5)
    fallen, wary, right = (
        backdoor_success(backdoor, data, server, batch_size=2, context=context)
        for server in (Corner(), FixedLogits([1.0, 0.0, 0.0]), Marked())
    )
    assert (fallen, wary, right) == (1.0, 0.0, 0.0)
