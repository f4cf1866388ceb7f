"""What a user's code calls a data set is told to be none, with what would be right, before anything trains on it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from oneshot_fl.data.dataset import Dataset, DataSpec, make_dataset
from oneshot_fl.data.sound import flaw, flaw_of_split
from oneshot_fl.errors import OneshotError

IMAGES, LABELS = torch.zeros(6, 1, 16, 16, dtype=torch.uint8), torch.arange(6) % 3
NAMES = ("x", "y", "z")
SOUND = Dataset("own", DataSpec(1, 16, 3, (0.5,), (0.5,)), NAMES, IMAGES, LABELS, IMAGES, LABELS)


def _made(**parts):
    usual = {"train": (IMAGES, LABELS), "test": (IMAGES, LABELS), "class_names": NAMES, "mean": [0.5], "std": [0.5]}
    return make_dataset(name="own", **{**usual, **parts})


def test_a_sound_data_set_has_no_flaw():
    assert flaw(SOUND) is None
    assert flaw(replace(SOUND, train_domains=LABELS, domain_names=("d", "e", "f"))) is None
    assert flaw(_made(train=(IMAGES, LABELS.to(torch.int32)))) is None
    assert flaw(_made(class_names=["x", "y", "z", "nobody has this one"])) is None


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ((IMAGES / 255, LABELS), "train_images: must be torch.uint8, from 0 (black) to 255 (white), not torch.float32"),
        ((IMAGES.numpy(), LABELS), "train_images: must be a torch tensor, not numpy.ndarray"),
        ((None, LABELS), "train_images: must be a torch tensor, not None"),
        ((IMAGES, LABELS.tolist()), "train_labels: must be a torch tensor, not list"),
        ((IMAGES, LABELS / 2), "train_labels: must be torch.int64 of the shape [n], not torch.float32 [6]"),
        ((IMAGES, LABELS > 1), "train_labels: must be torch.int64 of the shape [n], not torch.bool [6]"),
        ((IMAGES, LABELS.view(6, 1)), "train_labels: must be torch.int64 of the shape [n], not torch.int64 [6, 1]"),
        ((IMAGES, LABELS[:4]), "train_labels: must be one for each of 6 train_images, not 4"),
        ((IMAGES[0, 0], LABELS), "train_images: must have the shape [n, C, H, W], not [16, 16]"),
        ((IMAGES.to_sparse(), LABELS), "train_images: must be dense, not torch.sparse_coo; .to_dense() makes it that"),
        ((IMAGES.to("meta"), LABELS), "train_images: must lie in the CPU's memory, not on meta"),
    ],
)
def test_tensors_that_are_none_of_images_with_a_label_each_are_refused_when_they_are_put_together(train, says):
    with pytest.raises(OneshotError) as error:
        _made(train=train)
    assert str(error.value).startswith(f"data=own: {says}")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"class_names": None}, "class_names=None: must be a list of names"),
        ({"class_names": ("a", "a ", "b")}, "class_names: several classes are called 'a'"),
        ({"mean": 127.5}, "mean=[127.5]: must be a list, each entry a number between 0 and 1"),
        ({"mean": "half"}, "mean=half: must be a list"),
        ({"mean": [127.5]}, "mean=[127.5]: must be a list, each entry a number between 0 and 1"),
        ({"std": [0.1, 0.2]}, "std=[0.1, 0.2]: must be one number, or one for each of 1 channels"),
        ({"train": None}, "train_images: must be a torch tensor, not None"),
    ],
)
def test_names_and_numbers_that_do_not_fit_are_refused_too(parts, says):
    with pytest.raises(OneshotError) as error:
        _made(**parts)
    assert str(error.value).startswith(f"data=own: {says}")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_images": IMAGES.float()}, "train_images: must be torch.uint8"),
        ({"test_labels": LABELS.int()}, "test_labels: must be torch.int64"),
        ({"test_labels": np.zeros(6)}, "test_labels: must be a torch tensor, not numpy.ndarray"),
        (
            {"train_labels": LABELS + 1},
            "train_labels: must be from 0 to 2, as there are 3 class_names, not from 1 to 3",
        ),
        ({"test_labels": LABELS - 1}, "test_labels: must be from 0 to 2, as there are 3 class_names, not from -1 to 1"),
        ({"test_images": IMAGES[:0], "test_labels": LABELS[:0]}, "test_images: must be at least one image"),
        ({"train_images": IMAGES[:0], "train_labels": LABELS[:0]}, "train_images: must be at least one image"),
        ({"test_images": torch.zeros(6, 1, 18, 18).byte()}, "test_images: must have the shape [n, 1, 16, 16], not [6,"),
        ({"train_images": IMAGES[..., :12]}, "train_images: must have the shape [n, 1, 16, 16], not [6, 1, 16, 12]"),
        ({"spec": replace(SOUND.spec, channels=16)}, "channels=16: must be 1 (grey) or 3 (colour)"),
        ({"spec": replace(SOUND.spec, size=4)}, "size=4: must be a whole number between 8 and 1024"),
        ({"spec": replace(SOUND.spec, classes=2)}, "class_names: must be as many as spec.classes=2, not 3"),
        ({"class_names": ("x", "y", 3)}, "class_names: 3 must be a printable text"),
        ({"train_domains": LABELS}, "train_domains: must be from 0 to -1, as there are 0 domain_names"),
        ({"train_domains": LABELS[:2]}, "train_domains: must be torch.int64, one for each of 6 train_images"),
    ],
)
def test_the_first_flaw_of_a_whole_data_set_is_told(change, says):
    assert str(flaw(replace(SOUND, **change))).startswith(says)


HALVES = [np.arange(3), np.arange(3, 6)]


def test_a_split_is_disjoint_and_covers_all():
    for sound in (
        HALVES,
        tuple(HALVES),
        [half[::-1].astype(np.uint8) for half in HALVES],
        [np.arange(6), np.array([])],
    ):
        assert flaw_of_split(sound, clients=2, samples=6) is None


@pytest.mark.parametrize(
    ("indices", "says"),
    [
        (None, "must give a list of index arrays, one a client, not None"),
        (HALVES[:1], "must give an index array to each of 2 clients (partition.clients), not 1 arrays"),
        ([*HALVES, HALVES[0]], "must give an index array to each of 2 clients (partition.clients), not 3 arrays"),
        ([[0, 1, 2], HALVES[1]], "client 0 must get a NumPy array of indices, not list"),
        ([HALVES[0], HALVES[1] / 1], "client 1 must get an array [n] of whole numbers, not float64 [3]"),
        ([np.arange(6) < 3, np.arange(6) > 2], "client 0 must get an array [n] of whole numbers, not bool [6]"),
        ([HALVES[0] - 1, HALVES[1]], "indices must be from 0 to 5, as there are 6 training samples, not -1"),
        ([HALVES[0], HALVES[1] + 1], "indices must be from 0 to 5, as there are 6 training samples, not 6"),
        ([np.arange(4), HALVES[1]], "each of 6 training samples must go to one client once, but 1 go several times"),
        (
            [np.repeat(HALVES[0], 2), HALVES[1]],
            "each of 6 training samples must go to one client once, but 3 go several",
        ),
        ([HALVES[0], HALVES[1][:1]], "each of 6 training samples must go to one client once, but 2 go to no client"),
    ],
)
def test_another_split_is_told_with_what_would_be_right(indices, says):
    assert flaw_of_split(indices, clients=2, samples=6).startswith(says)
