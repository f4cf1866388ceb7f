import pytest
import torch
from torch.nn import functional as F

from oneshot_fl.phases.calibrate import calibrate, temperature


def test_the_temperature_undoes_what_logits_were_multiplied_by():
    teacher = torch.randn(200, 5)
    assert temperature(teacher * 3, teacher.softmax(1)) == pytest.approx(3, rel=1e-3)
    assert temperature(teacher / 4, teacher.softmax(1)) == pytest.approx(0.25, rel=1e-3)


def test_the_temperature_is_the_lowest_of_a_fine_grid():
    logits = torch.randn(300, 4) * 6
    y = torch.multinomial((logits / 3).softmax(1), 1).squeeze(1)
    grid = torch.linspace(0.5, 8, 1000).tolist()
    losses = [float(F.cross_entropy(logits / t, y)) for t in grid]
    assert temperature(logits, F.one_hot(y, 4)) == pytest.approx(grid[losses.index(min(losses))], rel=0.02)


class Steep(torch.nn.Module):
    """Three logits that follow the mean of an image, as steeply as `slope`."""

    def __init__(self, slope):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(slope))

    def forward(self, x):
        level = x.flatten(1).mean(1) * self.slope
        return torch.stack([level, -level, level * 0], dim=1)


@pytest.mark.parametrize("images", [None, torch.randint(256, (60, 1, 8, 8), dtype=torch.uint8)])
def test_a_model_becomes_as_sure_as_its_clients(spec, images):
    clients = [Steep(2.0), Steep(2.0)]
    found = calibrate(Steep(10.0), clients, images, spec=spec, seed=0, batch_size=32)
    assert found.temperature == pytest.approx(5, rel=1e-3)
    assert (found.kind, found.images) == (("procedural", 1000) if images is None else ("synthetic", 60))


def test_without_classifiers_nobody_tells(spec):
    assert calibrate(Steep(1.0), [], None, spec=spec, seed=0, batch_size=32) is None
