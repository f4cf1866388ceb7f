"""The small functions of the data flow; the flow itself is tests/pipeline."""

from dataclasses import replace

import pytest
import torch

from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.uploads import ClassifierUpload
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.pipeline import arithmetic, received
from tests.parts import CPU, SMALL, decoder_of


@pytest.mark.parametrize(
    "changes", [{"precision": "bf16-mixed"}, {"channels_last": False}, {"matmul_precision": "high"}]
)
def test_whatever_changes_how_numbers_are_computed_is_in_every_key(changes):
    assert arithmetic(CPU) == arithmetic(replace(CPU))
    assert arithmetic(replace(CPU, **changes)) != arithmetic(CPU)
    assert arithmetic(CPU)["torch"] == torch.__version__


def test_the_server_receives_classifiers_and_decoders_apart_in_their_order():
    models = [torch.nn.Identity() for _ in range(2)]
    classifiers = [ClassifierUpload(model, 5, f"classifier {k}") for k, model in enumerate(models)]
    decoder = decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 0, 4])
    sent = [classifiers[0], decoder, classifiers[1]]
    uploads = received([TrainedClient(upload, "any", "any", 5, 0.0, 1) for upload in sent])
    assert [(upload.key, upload.name) for upload in uploads.classifiers] == [
        ("classifier 0", "client 0"),
        ("classifier 1", "client 2"),
    ]
    assert [upload.key for upload in uploads.decoders] == [decoder.key]
