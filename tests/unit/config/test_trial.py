"""Architectures and batches that cannot be made are refused before anything is trained, without taking memory."""

import pytest
from omegaconf import OmegaConf
from torch import nn

from oneshot_fl.config.trial import check_sizes, has_features, shape_of
from oneshot_fl.errors import OneshotError

DIGITS = {"_target_": "oneshot_fl.data.datasets.digits"}
GENERATOR = {"_target_": "oneshot_fl.models.generators.ConvGenerator", "name": "conv", "noise": 8, "width": 4}
CNN2 = {"_target_": "oneshot_fl.models.classifiers.cnn2", "name": "cnn2", "norm": True}


def _check(model=None, *, generator=None, batch_size=8, samples=8, data=DIGITS):
    settings = {
        "data": data,
        "generator": {**GENERATOR, **(generator or {})},
        "distill": {"batch_size": batch_size},
        "stratify": {"batch_size": 8},
        "proxy": {"samples": samples},
    }
    check_sizes(settings, [OmegaConf.create({**CNN2, **(model or {})})])


def test_what_fits_passes():
    _check()


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (
            {"generator": {"noise": 10**8, "width": 10**5}},
            r"^conv: [\d,]+ parameters: would need [\d,]+ GB at the least",
        ),
        ({"batch_size": 10**12}, r"^distill\.batch_size=1000000000000: would need"),
        ({"samples": 10**13}, r"^proxy\.samples=10000000000000: would need"),
        ({"model": {"_target_": "oneshot_fl.models.zoo.resnet", "depth": 19}}, r"^(cnn2|oneshot_fl)"),
        (
            {"model": {"_target_": "tests.unit.config.test_trial.one_answer", "norm": True}},
            r"^cnn2: is no classifier, it does not answer with one number per class",
        ),
        (
            {"model": {"_target_": "tests.unit.config.test_trial.in_double", "norm": True}},
            r"^cnn2: 1\.weight is of torch\.float64, and images of torch\.float32; build it in that",
        ),
    ],
)
def test_what_does_not_is_named(wrong, line):
    with pytest.raises(OneshotError, match=line):
        _check(**wrong)


def one_answer(spec, *, norm):
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.channels * spec.size**2, 1))


def in_double(spec, *, norm):
    return one_answer(spec, norm=norm).double()


class Idle(nn.Module):
    """Its head is a convolution; a linear layer is there and does not run."""

    def __init__(self, spec, *, norm):
        super().__init__()
        self.head, self.idle = nn.Conv2d(spec.channels, spec.classes, 1), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(x).mean(dim=(2, 3))


def test_features_are_there_where_a_linear_layer_runs():
    idle = {**CNN2, "_target_": f"{__name__}.Idle"}
    assert has_features(OmegaConf.create(CNN2), DIGITS)
    assert not has_features(OmegaConf.create(idle), DIGITS)
    of_unknown_side = {"_target_": "oneshot_fl.data.image_folder.image_folder", "channels": 1, "size": None}
    assert has_features(OmegaConf.create(idle), of_unknown_side)  # it is asked when the images are there


def test_the_side_of_a_users_images_is_known_only_where_it_is_set():
    folder = {"_target_": "oneshot_fl.data.image_folder.image_folder", "channels": 1}
    assert shape_of(DIGITS) == (1, 8, 10)
    assert shape_of({**folder, "size": None}) == (1, None, None)
    assert shape_of({**folder, "size": 64}) == (1, 64, None)
    assert shape_of({"_target_": "my_data.stripes", "samples": 600, "channels": "grey"}) == (None, None, None)


def for_grey_stripes(spec, *, norm):
    if (spec.channels, spec.classes) != (1, 3):
        raise ValueError("made for grey images of three classes only")
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.channels * spec.size**2, 3))


def test_what_does_not_fit_a_guess_may_fit_images_that_nobody_has_seen():
    node = {"_target_": f"{__name__}.for_grey_stripes"}
    with pytest.raises(OneshotError, match="made for grey images of three classes only"):
        _check(node)
    _check(node, data={"_target_": "my_data.stripes"})
    assert has_features(OmegaConf.create(CNN2 | node), {"_target_": "my_data.stripes"})
