"""The small functions of the data flow; the flow itself is tests/pipeline."""

import torch

from oneshot_fl.ledger import NOTHING
from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.uploads import ClassifierUpload
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.pipeline import received
from tests.parts import SMALL, decoder_of


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
