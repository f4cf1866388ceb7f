"""What hostile clients made of their samples, and would make of all others."""

import pytest
import torch

from oneshot_fl.data.dataset import Dataset
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.classifiers import cnn2_torch
from oneshot_fl.parts.attacks import Backdoor, LabelFlip
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.train import ClientPlan
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.phases.poisoned import poisoned
from tests.parts import SMALL, recipe_of

TRAINING = Training(epochs=1, batch_size=16, optimizer=recipe_of(torch.optim.SGD, lr=0.01), seed=0)
INDICES = [torch.tensor([0, 2, 4]), torch.tensor([5, 3, 1])]


def _data():
    images = torch.zeros(9, 1, 8, 8, dtype=torch.uint8)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1, 2])
    return Dataset("black", SMALL, ("a", "b", "c"), images[:6], labels[:6], images[6:], labels[6:])


def _plans(poison):
    """The last of two clients is hostile."""
    return [
        ClientPlan(Architecture(recipe_of(cnn2_torch)), TRAINING, Classifier(), poison=one) for one in (None, poison)
    ]


def _white(images):
    return images.flatten(1).any(dim=1).tolist()


def test_nobody_is_hostile():
    assert poisoned(_data(), INDICES, _plans(None)) is None


def test_flipped_labels_are_flipped_everywhere():
    found = poisoned(_data(), INDICES, _plans(recipe_of(LabelFlip, clients=1)))
    assert found.data.train_labels.tolist() == [2, 2, 1, 1, 0, 0]
    assert found.data.test_labels.tolist() == [2, 1, 0]
    assert found.hostile.tolist() == [5, 3, 1]


def test_a_hostile_client_s_images_are_those_that_it_trained_on_in_its_own_order():
    """Of every three images the first is patched: of the client's it is 5, of others 0 and 3, of the test the first."""
    data = _data()
    found = poisoned(data, INDICES, _plans(recipe_of(Backdoor, clients=1, target=2, side=0.1, share=1 / 3)))
    assert _white(found.data.train_images) == [True, False, False, False, False, True]
    assert found.data.train_labels.tolist() == [2, 0, 1, 1, 2, 2]
    assert _white(found.data.test_images) == [True, False, False]
    assert found.data.test_labels.tolist() == [2, 1, 2]
    assert not any(_white(data.train_images))


class InPlace(LabelFlip):
    def __call__(self, images, labels, classes):
        return images, labels.mul_(0)


def test_an_attack_that_writes_into_what_it_is_given_changes_no_data():
    data = _data()
    assert poisoned(data, INDICES, _plans(recipe_of(InPlace, clients=1))).data.train_labels.tolist() == [0] * 6
    assert data.train_labels.tolist() == [0, 0, 1, 1, 2, 2]


class Doubled(LabelFlip):
    def __call__(self, images, labels, classes):
        return torch.cat([images, images]), torch.cat([labels, labels])


def test_an_attack_that_makes_more_samples_is_refused():
    told = r"^evaluate=privacy: attack=twice makes 12 images and 12 labels of 6, .*; it must make one of each$"
    with pytest.raises(OneshotError, match=told):
        poisoned(_data(), INDICES, _plans(recipe_of(Doubled, name="twice", clients=1)))
