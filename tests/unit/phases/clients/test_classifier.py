"""A client with a classifier: its steps by hand, and what it uploads."""

import math

import pytest
import torch
from torch import nn

from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.phases.clients.classifier import Classifier, ClientModule, SharpnessAwareModule
from oneshot_fl.phases.clients.training import Sent, Training
from oneshot_fl.phases.trainer import trainer_of
from tests.parts import CPU, recipe_of


def _training(**options):
    sgd = recipe_of(torch.optim.SGD, lr=2.0)
    return Training(epochs=1, batch_size=2, optimizer=sgd, seed=0, **options)


def _linear():
    layer = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def test_an_epoch_is_a_step_a_batch_and_its_mean_loss():
    """At w = 0 the loss of x = 1, class 0, is ln 2 with gradient (-1/2, 1/2); then w = (1, -1): ln(1 + exp(-2))."""
    batch = torch.ones(1, 1), torch.zeros(1, dtype=torch.long)
    module = Classifier().module(_linear(), _training(), [batch, batch], spec=None)
    with trainer_of(module, CPU) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    assert module.epoch_losses == [pytest.approx((math.log(2) + math.log1p(math.exp(-2))) / 2)]
    p = 1 / (1 + math.exp(2))
    assert module.model.weight.flatten().tolist() == pytest.approx([1 + 2 * p, -1 - 2 * p])


@pytest.mark.parametrize(("sam", "kind"), [(None, ClientModule), (0.1, SharpnessAwareModule)])
def test_a_radius_makes_training_sharpness_aware(sam, kind):
    assert type(Classifier().module(_linear(), _training(sam=sam), [], spec=None)) is kind


def test_the_whole_model_is_uploaded_and_beside_it_only_the_label_counts_that_were_asked_for(spec):
    model, kind = cnn2(spec, norm=True).eval(), Classifier()
    assert kind.uploaded(model) is model
    assert kind.facts(torch.tensor([0, 1, 1]), 3) == {}
    upload, counted = (kind.upload(model, spec, Sent("key", 7, {}, counts, lambda: None)) for counts in (None, [7]))
    assert (upload.model, upload.samples, upload.key, upload.label_counts) == (model, 7, "key", None)
    assert counted.label_counts == [7]
    assert kind.probe(model, *kind.one_image(spec, model), torch.tensor([0])).shape == (1, 3)
