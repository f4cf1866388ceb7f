"""Who is audited, and by which images."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from oneshot_fl import panels
from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.attacks import LabelFlip
from oneshot_fl.parts.uploads import Recital
from tests.parts import SMALL, FixedLogits, decoder_of, recipe_of, uploads_of

INDICES = [torch.tensor(index) for index in ([0, 1], [2, 3], [4, 5])]
DATA = SimpleNamespace(spec=SMALL)
GIVEN = SimpleNamespace(indices=INDICES, data=DATA, proxy=None)


def _result(*, received, used, recitals=None, images=None):
    """Of one communication round."""
    server = SimpleNamespace(images=images, labels=None, held=None, model="the server's")
    return SimpleNamespace(received=received, given=SimpleNamespace(uploads=used), server=server, recitals=recitals)


def _audited(monkeypatch, *results, uses, poison=None, changed=None):
    """What `measure_privacy` is given: uploads, what the server learned of, synthetic images. The last is hostile."""
    seen = []
    monkeypatch.setattr(panels, "measure_privacy", lambda *given, changed, context: seen.append((*given, changed)))
    monkeypatch.setattr(panels, "poisoned", lambda data, indices, plans: changed)
    asked = SimpleNamespace(privacy="asked for", validation=None, fidelity=None, batch_size=1)
    plans = [SimpleNamespace(poison=one) for one in (None, None, poison)]
    method = SimpleNamespace(uses=uses)
    experiment = SimpleNamespace(evaluation=asked, method=method, attack=None, clients=plans)
    panels.panels(experiment, GIVEN, results, context=None)
    ((_, _, _, attacked, learned, made, given_changed),) = seen
    assert given_changed is changed
    return attacked, learned.tolist(), {name: each.learned.tolist() for name, each in made.items()}


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
    attacked, learned, _ = _audited(monkeypatch, _result(received=received, used=used), uses=uses)
    assert [(one.model, one.members.tolist()) for one in attacked] == [(sound, [0, 1]), (tampered, [2, 3])]
    assert learned == members


def _three():
    return uploads_of([FixedLogits([float(k), 0.0, 0.0]) for k in range(3)], [2, 2, 2])


def test_a_client_that_an_attack_has_poisoned_is_attacked_as_one(monkeypatch):
    three, made = _three(), object()
    poison = recipe_of(LabelFlip, clients=1)
    result = _result(received=three, used=three)
    attacked, _, _ = _audited(monkeypatch, result, uses={"classifiers"}, poison=poison, changed=made)
    assert [one.hostile for one in attacked] == [False, False, True]


def _recited_by(*names):
    one = Recital(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.zeros(1), "key")
    return SimpleNamespace(of_clients=(one,) * len(names), clients=names)


def test_recitals_are_held_against_the_images_of_all_who_recited(monkeypatch):
    """The gate turned client 0 away, the hearing client 2; the server's images are of client 1 alone."""
    three = _three()
    recitals = _recited_by("client 1", "client 2")
    used = replace(three, classifiers=three.classifiers[1:2])
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    result = _result(received=three, used=used, recitals=recitals, images=images)
    _, learned, made = _audited(monkeypatch, result, uses={"classifiers"})
    assert learned == [2, 3]
    assert made == {"images": [2, 3], "recitals": [2, 3, 4, 5]}


def test_who_was_used_in_an_earlier_communication_round_is_still_learned_of(monkeypatch):
    """All began the last round at a server that client 0 had taught; client 1 was never used."""
    three = _three()
    first, last = (replace(three, classifiers=three.classifiers[k : k + 1]) for k in (0, 2))
    recitals, images = _recited_by("client 2"), torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    results = [
        _result(received=three, used=first),
        _result(received=three, used=last, recitals=recitals, images=images),
    ]
    _, learned, made = _audited(monkeypatch, *results, uses={"classifiers"})
    assert learned == [0, 1, 4, 5]
    assert made == {"images": [0, 1, 4, 5], "recitals": [0, 1, 4, 5]}
