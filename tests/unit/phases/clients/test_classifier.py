"""A client with a classifier: what trains it, and what it uploads."""

import pytest
import torch
from torch import nn

from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.module import ClientModule, SharpnessAwareModule
from oneshot_fl.phases.clients.training import Sent, Training
from tests.parts import recipe_of


def _training(**options):
    sgd = recipe_of(torch.optim.SGD, lr=2.0)
    return Training(epochs=1, batch_size=2, optimizer=sgd, seed=0, **options)


@pytest.mark.parametrize(("sam", "kind"), [(None, ClientModule), (0.1, SharpnessAwareModule)])
def test_a_radius_makes_training_sharpness_aware(sam, kind):
    assert type(Classifier().module(nn.Linear(1, 2), _training(sam=sam), [], spec=None)) is kind


def test_the_whole_model_is_uploaded_and_beside_it_only_the_label_counts_that_were_asked_for(spec):
    model, kind = cnn2(spec, norm=True).eval(), Classifier()
    assert kind.uploaded(model) is model
    assert kind.facts(torch.tensor([0, 1, 1]), 3) == {}
    upload, counted = (kind.upload(model, Sent("key", 7, {}, counts, lambda: None)) for counts in (None, [7]))
    assert (upload.model, upload.samples, upload.key, upload.label_counts) == (model, 7, "key", None)
    assert counted.label_counts == [7]
    assert kind.probe(model, *kind.one_image(spec, model), torch.tensor([0])).shape == (1, 3)
