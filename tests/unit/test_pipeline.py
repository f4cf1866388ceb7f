"""The small functions of the data flow; the flow itself is tests/pipeline."""

from dataclasses import replace

import pytest
import torch

from oneshot_fl.config import experiment_of
from oneshot_fl.errors import NothingLeftError
from oneshot_fl.ledger import NOTHING
from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.uploads import ClassifierUpload, Quarantined
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.pipeline import admit, received
from tests.composing import compose_config
from tests.parts import SMALL, decoder_of, uploads_of


def test_the_server_receives_classifiers_and_decoders_apart_in_their_order():
    models = [torch.nn.Identity() for _ in range(2)]
    classifiers = [ClassifierUpload(model, 5, f"classifier {k}") for k, model in enumerate(models)]
    decoder = decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 0, 4])
    sent = [classifiers[0], decoder, classifiers[1]]
    uploads = received([TrainedClient(upload, "any", "any", 5, NOTHING, 1) for upload in sent])
    assert [(upload.key, upload.name) for upload in uploads.classifiers] == [
        ("classifier 0", "client 0"),
        ("classifier 1", "client 2"),
    ]
    assert [upload.key for upload in uploads.decoders] == [decoder.key]


CLASSIFIERS = uploads_of([torch.nn.Linear(1, 1)], [5])
DECODERS = uploads_of([], [], [decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 0, 4])])


def _admitted(method, left, context):
    plan = experiment_of(compose_config("trainer=cpu", f"method={method}", "clients=half_cvae"))
    turned_away = (Quarantined("client 7", "draws nothing"), Quarantined("client 8", "says nothing"))
    return admit(plan, replace(left, quarantined=turned_away), SMALL, context)[1]


@pytest.mark.parametrize(
    ("method", "left", "kind"),
    [
        ("dense", DECODERS, "classifiers"),
        ("fedchorus", DECODERS, "classifiers"),
        ("fedavg", DECODERS, "classifiers"),
        ("fedmho", CLASSIFIERS, "decoders"),
        ("fedmho_md", DECODERS, "classifiers"),
    ],
)
def test_a_method_cannot_do_without_a_kind_of_uploads_that_was_turned_away(method, left, kind, context):
    line = rf"^method={method}: needs {kind}, and none is left; turned away: client 7: draws nothing \(and 1 more\)$"
    with pytest.raises(NothingLeftError, match=line):
        _admitted(method, left, context)


def test_what_a_method_does_not_need_may_be_turned_away(context):
    assert _admitted("fedmho", DECODERS, context).decoders == DECODERS.decoders
    assert _admitted("dense", CLASSIFIERS, context).classifiers == CLASSIFIERS.classifiers
