"""What a client adds: the answers that change without it, counted on images that are handed over."""

from dataclasses import replace

import torch

from oneshot_fl.aggregation.contribution import contributions, uncovered
from oneshot_fl.artifacts import Spent
from oneshot_fl.ledger import NOTHING
from oneshot_fl.parts.uploads import DecoderUpload, Uploads
from oneshot_fl.phases.global_model import Distilled
from tests.parts import SMALL, FixedLogits, uploads_of

IMAGES = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
SPENT = Spent(NOTHING, 1, 0)
LABELS = torch.zeros(4, dtype=torch.long)
MADE = Distilled(torch.nn.Identity(), [], 0, {}, IMAGES, LABELS, torch.ones(4), None, "key", SPENT)


def test_the_client_that_decides_is_the_one_without_whom_answers_change():
    sure, unsure, other = FixedLogits([9.0, 0.0, 0.0]), FixedLogits([0.0, 0.4, 0.0]), FixedLogits([0.0, 0.3, 0.0])
    found = contributions(uploads_of([sure, unsure, other], [1] * 3), MADE, SMALL)
    assert found.changes == [1.0, 0.0, 0.0]
    assert (found.favourites, found.shares) == ([0, 1, 1], [1.0] * 3)
    assert (found.uncovered, found.images) == ([2], 4)


def test_label_counts_say_which_classes_nobody_has():
    uploads = uploads_of([FixedLogits([9.0, 0.0, 0.0])], [1])
    told = tuple(replace(one, label_counts=torch.tensor([0, 5, 0])) for one in uploads.classifiers)
    found = contributions(replace(uploads, classifiers=told), MADE, SMALL)
    assert (found.uncovered, found.changes) == ([0, 2], [1.0])


def test_decoders_tell_what_nobody_has_without_being_asked():
    decoder = DecoderUpload(torch.nn.Identity(), 2, torch.tensor([1, 0, 2]), "key", torch.nn.Identity)
    assert uncovered(Uploads((), (decoder,))) == [1]


def test_what_decoders_tell_stands_beside_what_silent_classifiers_say():
    decoder = DecoderUpload(torch.nn.Identity(), 2, torch.tensor([1, 0, 0]), "key", torch.nn.Identity)
    silent = uploads_of([FixedLogits([0.0, 9.0, 0.0])], [1]).classifiers
    assert contributions(Uploads(silent, (decoder,)), MADE, SMALL).uncovered == [2]


def test_where_a_method_makes_no_images_others_are_asked_about():
    found = contributions(uploads_of([FixedLogits([9.0, 0.0, 0.0])], [1]), replace(MADE, images=None), SMALL)
    assert found.images == 512
