"""Who is audited, and by which images."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from oneshot_fl import panels
from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.uploads import Uploads
from tests.parts import SMALL, FixedLogits, decoder_of, uploads_of

INDICES = [torch.tensor(index) for index in ([0, 1], [2, 3], [4, 5])]


def _audited(monkeypatch, *, received: Uploads, used: Uploads, uses: set[str]):
    """What `measure_privacy` is given: uploads with their images, and those that the server learned of."""
    seen = []
    monkeypatch.setattr(panels, "measure_privacy", lambda *given, context: seen.append(given))
    asked = SimpleNamespace(privacy="asked for", validation=None, fidelity=None, batch_size=1)
    experiment = SimpleNamespace(evaluation=asked, method=SimpleNamespace(uses=uses), attack=None)
    server = SimpleNamespace(images=None, labels=None, held=None, model="the server's")
    result = SimpleNamespace(received=received, given=SimpleNamespace(uploads=used), server=server, recitals=None)
    given = SimpleNamespace(indices=INDICES, data=SimpleNamespace(spec=SMALL), proxy=None)
    panels.panels(experiment, given, result, context=None)
    ((_, _, _, attacked, learned, _),) = seen
    return [(model, index.tolist()) for model, index in attacked], learned.tolist()


@pytest.mark.parametrize(
    ("uses", "members"),
    [({"classifiers"}, [0, 1]), ({"classifiers", "decoders"}, [0, 1, 4, 5]), ({"decoders"}, [4, 5])],
)
def test_uploads_are_attacked_as_they_came_and_the_server_by_what_it_learned_of(monkeypatch, uses, members):
    sound, tampered = FixedLogits([1.0, 0.0, 0.0]), FixedLogits([0.0, 0.0, 9.0])
    received = uploads_of(
        [sound, tampered], [2, 2], [decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 1, 0], key="client 2")]
    )
    used = replace(received, classifiers=received.classifiers[:1])  # the gate has turned client 1 away
    attacked, learned = _audited(monkeypatch, received=received, used=used, uses=uses)
    assert attacked == [(sound, [0, 1]), (tampered, [2, 3])]
    assert learned == members
