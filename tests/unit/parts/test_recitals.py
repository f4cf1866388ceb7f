from collections import Counter

import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.parts.recitals import DOUBTED, RecitalSource, shaken, shown, shown_label_shares
from oneshot_fl.parts.slots import Turn
from oneshot_fl.parts.uploads import Recital
from oneshot_fl.seeds import torch_generator
from tests.parts import SMALL, server_of


class _Brightness(nn.Module):
    """Says class 0 of images darker than the middle and class 2 of others, never class 1."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        light = x.mean(dim=(1, 2, 3)) > 0
        return torch.stack([~light, light & ~light, light], dim=1) * 40.0 + self.bias


def test_the_source_hands_over_every_recital_as_models_see_it_and_trusts_labels_that_its_client_sees():
    recitals = [torch.full((2, 1, 8, 8), 0, dtype=torch.uint8), torch.full((3, 1, 8, 8), 255, dtype=torch.uint8)]
    source = RecitalSource(server_of([_Brightness(), _Brightness()], recitals=recitals))
    made = source.make(Turn(None, None, None, torch_generator(0)))
    assert_close(made.x[:, 0, 0, 0], torch.tensor([-1.0, -1.0, 1.0, 1.0, 1.0]))
    assert made.y.tolist() == [0, 1, 0, 1, 2]
    assert made.trust.tolist() == [1, DOUBTED, DOUBTED, DOUBTED, 1]  # the dark ones say 0, the light ones 2


def test_a_recital_is_shown_to_its_own_client_as_it_answers_in_use():
    model = nn.Sequential(nn.BatchNorm2d(1), _Brightness()).train()  # by the batch the darker half would be dark
    images = torch.tensor([200, 250], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 8, 8)
    assert shown(model, Recital(images, torch.tensor([2, 2]), "key"), SMALL).tolist() == [True, True]
    assert int(model[0].num_batches_tracked) == 0


def test_a_class_that_a_model_never_names_has_no_share():
    shares = shown_label_shares(_Brightness(), SMALL, torch_generator(0))
    assert_close(shares.sum(), torch.tensor(1.0))
    assert shares[1] < 1e-6
    assert shares[0] > shares[2] > 0  # most drawings are dark


def test_asking_for_its_shares_leaves_a_client_as_it_was():
    model = cnn2(SMALL, norm=True).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    shares = shown_label_shares(model, SMALL, torch_generator(0))
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert_close(shares, shown_label_shares(model.eval(), SMALL, torch_generator(0)), rtol=0, atol=0)


def test_shaken_images_are_rolled_together_and_half_the_time_mirrored():
    """Of two images with one light pixel each, in two corners, both are moved alike; every place is reached."""
    images = torch.zeros(2, 1, 8, 8)
    images[0, 0, 2, 2] = images[1, 0, 5, 2] = 1
    reached = Counter()
    rng = torch_generator(0)
    for _ in range(400):
        first, second = (tuple(int(at) for at in one[0].nonzero()[0]) for one in shaken(images, 1, rng, mirrored=True))
        assert second == (first[0] + 3, first[1])
        reached[first] += 1
    mirrored = {5 - right for right in (-1, 0, 1)}
    assert reached.keys() == {(row, column) for row in (1, 2, 3) for column in {1, 2, 3} | mirrored}
    assert 160 <= sum(count for (_, column), count in reached.items() if column in mirrored) <= 240  # 4 deviations
