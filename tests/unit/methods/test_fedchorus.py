import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.methods.fedchorus import EvidenceWeighted, SelfGated, evidence, mean_owners, shown_shares
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.recitals import DOUBTED
from oneshot_fl.parts.uploads import Recital, known_classes
from tests.parts import SMALL, FixedLogits, server_of, votes_of

LOG3 = math.log(3.0)
TWO = replace(SMALL, classes=2)
P = torch.tensor([[[LOG3, 0.0], [LOG3, 0.0]], [[0.0, LOG3], [0.0, LOG3]]])
"""Two clients, two images: the first says [3/4, 1/4] of both, the second [1/4, 3/4]."""
FEATURES = [torch.tensor([[3.0, 4.0], [0.6, 0.8]]), torch.tensor([[1.0, 0.0], [4.0, 0.0]])]
"""Lengths 5 and 1, 1 and 4."""


NORMALISED = nn.BatchNorm2d(1)


EVIDENCE = {"sharpness": 2.0, "power": 1.0, "doubt": 0.0, "pool_counts": 1}
SELF_GATED = {"self_gated": 0.5, "owners": 1.3, "self_doubt": 0.0, "rounds": 2}


def _ensemble(client: nn.Module = NORMALISED, **options) -> EvidenceWeighted:
    return EvidenceWeighted(server_of([client, client], spec=TWO), **{**EVIDENCE, **SELF_GATED, **options})


@pytest.mark.parametrize(
    ("power", "lengths"), [(0.0, [[1, 1], [1, 1]]), (1.0, [[5, 1], [1, 4]]), (0.5, [[5**0.5, 1], [1, 2]])]
)
def test_evidence_is_the_best_answer_above_the_mean_for_so_long_a_feature(power, lengths):
    gap = LOG3 - LOG3 / 2
    found = evidence(votes_of(P, features=FEATURES), torch.ones(2, 2, dtype=torch.bool), power)
    assert_close(found, gap / torch.tensor(lengths, dtype=torch.float32))


def test_evidence_leaves_out_classes_that_a_client_has_no_output_for():
    # neither has one for the third class: what stands there, the same above all answers, is in no feature's direction
    wider = torch.cat([P, torch.full((2, 2, 1), -8.0)], dim=2)
    own = torch.tensor([[True, True, False]] * 2)
    assert_close(evidence(votes_of(wider, features=FEATURES), own, 1.0), LOG3 / 2 / torch.tensor([[5.0, 1], [1, 4]]))
    # one that has all three: ln 3 - (ln 3 + 0 - 8) / 3
    own[1, 2] = True
    gap = torch.tensor([[LOG3 / 2], [LOG3 * 2 / 3 + 8 / 3]])
    assert_close(evidence(votes_of(wider, features=FEATURES), own, 1.0), gap / torch.tensor([[5.0, 1], [1, 4]]))


def test_classes_that_a_client_does_not_name_are_known_from_its_upload():
    server = server_of([NORMALISED, NORMALISED], unknown=[(), (2,)])
    assert known_classes(server.uploads.classifiers, 3).tolist() == [[1, 1, 1], [1, 1, 0]]
    ensemble = EvidenceWeighted(server, **EVIDENCE, **SELF_GATED)
    wider = torch.cat([P, torch.full((2, 2, 1), -8.0)], dim=2)
    kept = ensemble.remember(votes_of(wider, features=FEATURES))  # logits, evidence, room for whom the student asks
    assert_close(kept[:, 1, 3], LOG3 / 2 / torch.tensor([1.0, 4.0]))


def test_before_anything_is_usual_evidence_counts_as_it_is():
    gap = LOG3 / 2
    first = torch.softmax(2.0 * torch.tensor([gap / 5, gap]), dim=0)
    expected = first[0] * torch.tensor([0.75, 0.25]) + first[1] * torch.tensor([0.25, 0.75])
    assert_close(_ensemble()(votes_of(P, features=FEATURES))[0].exp(), expected)


def _refitted(y: list[int], trust: list[float], **options) -> EvidenceWeighted:
    """After a pool of the two images; all of them together count as one more."""
    ensemble, pool = _ensemble(**options), Pool(server_of(), rounds=1)
    votes = votes_of(P, features=FEATURES)
    pool.add(Entry(votes.x, torch.tensor(y), ensemble.remember(votes), torch.tensor(trust)))
    ensemble.refit(pool, 4, torch.Generator())
    return ensemble


def test_what_is_usual_is_learned_from_mistakes_and_the_pool():
    # of the first image, made for class 1, client 0 says 0; of the second, made for class 0, client 1 says 1; evidence,
    # in gaps: client 0 has 1/5 there and 3/5 +- 2/5 in the pool, client 1 has 1/4 and 5/8 +- 3/8
    ensemble, gap = _refitted([1, 0], [1.0, 1.0]), LOG3 / 2
    assert_close(ensemble.mean, gap * torch.tensor([[2 / 5, 3 / 5], [5 / 8, 7 / 16]]))
    variance = torch.tensor([[4 / 25 - 1 / 25, 4 / 25], [9 / 64, 9 / 64 - 9 / 256]])
    assert_close(ensemble.deviation, gap * variance.sqrt())
    # of the first image client 0 is (1/5 - 2/5) / 0.1200^0.5 above what is usual, client 1 (1 - 7/16) / 0.1055^0.5
    weight = torch.softmax(2.0 * torch.tensor([-1 / 5 / 0.12**0.5, 9 / 16 / (27 / 256) ** 0.5]), dim=0)
    votes = votes_of(P, features=FEATURES)
    answer = weight[0] * torch.tensor([0.75, 0.25]) + weight[1] * torch.tensor([0.25, 0.75])
    assert_close(ensemble(votes)[0].exp(), answer)
    assert_close(ensemble.recall(Entry(votes.x, votes.y, ensemble.remember(votes), torch.ones(2))), ensemble(votes))


@pytest.mark.parametrize("y", [[1, 0], [0, 1]])
@pytest.mark.parametrize(("trust", "client"), [(0.0, NORMALISED), (1.0, nn.Identity()), (1.0, nn.GroupNorm(1, 1))])
def test_mistakes_say_nothing_where_no_label_is_trusted_or_a_client_has_no_batch_norm(y, trust, client):
    ensemble, gap = _refitted(y, [trust, trust], client=client), LOG3 / 2
    assert_close(ensemble.mean, gap * torch.tensor([[3 / 5, 3 / 5], [5 / 8, 5 / 8]]))
    assert_close(ensemble.deviation, gap * torch.tensor([[2 / 5, 2 / 5], [3 / 8, 3 / 8]]))


def test_what_is_right_is_no_mistake():
    # made for class 0, both: client 0 is right of both, client 1 mistaken of both, with 5/8 +- 3/8 as in the pool
    ensemble, gap = _refitted([0, 0], [1.0, 1.0]), LOG3 / 2
    assert_close(ensemble.mean, gap * torch.tensor([[3 / 5, 3 / 5], [5 / 8, 5 / 8]]))
    # trusted by half, the first counts by half: (0.5 * 3/8 - 3/8) / 2.5 above 5/8
    half = _refitted([0, 0], [0.5, 1.0])
    assert_close(half.mean[1], gap * torch.tensor([5 / 8, 5 / 8 - 3 / 40]))


def test_a_mistake_of_what_a_recital_does_not_show_counts_like_others():
    shown, doubted = (_refitted([1, 0], [trust, 1.0]) for trust in (1.0, DOUBTED))
    assert_close(doubted.mean, shown.mean)
    assert not torch.allclose(shown.mean, _refitted([1, 0], [0.0, 1.0]).mean)


def test_features_that_are_all_zero_are_no_evidence():
    dead = [FEATURES[0], torch.zeros_like(FEATURES[1])]
    gap = LOG3 / 2
    assert_close(
        evidence(votes_of(P, features=dead), torch.ones(2, 2, dtype=torch.bool), 1.0),
        torch.tensor([[gap / 5, gap], [0.0, 0.0]]),
    )


@pytest.mark.parametrize("same", [0.0, 12.345])
def test_evidence_that_is_the_same_for_all_images_is_usual_for_each(same):
    ensemble, pool = _ensemble(), Pool(server_of(), rounds=1)
    P = torch.stack([torch.linspace(0, 1, 3001), torch.zeros(3001)], dim=1).repeat(2, 1, 1)
    answers = torch.cat([P, torch.full((2, 3001, 1), same), torch.zeros(2, 3001, 1)], dim=2).transpose(0, 1)
    entry = Entry(torch.zeros(3001, 1, 1, 1), torch.zeros(3001, dtype=torch.long), answers, torch.ones(3001))
    pool.add(entry)
    ensemble.refit(pool, 4, torch.Generator())
    assert_close(ensemble.recall(entry), P[0].log_softmax(dim=1))
    assert (ensemble.deviation > 1e38).all()
    assert ensemble.deviation.isfinite().all()  # or the store would refuse the result


def test_doubt_adds_the_entropy_of_an_answer():
    sure = torch.tensor([[[50.0, 0.0]], [[0.0, 0.0]]])
    answer = _ensemble(sharpness=0.0, doubt=3.0)(votes_of(sure, features=[torch.ones(1, 2)] * 2)).exp()
    weight = 1 / (1 + math.exp(-3 * math.log(2)))  # against entropy ln 2
    assert_close(answer, torch.tensor([[weight + (1 - weight) / 2, (1 - weight) / 2]]))


def _recital(labels: list[int]) -> Recital:
    return Recital(torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8), torch.tensor(labels), "key")


RECITALS = (_recital([0, 0]), _recital([0, 0, 1, 1]))
"""Of what they show client 0 has 1 of 3/2 of class 0 and nothing of class 1, client 1 has the rest."""


def test_shares_are_of_what_all_recitals_show_of_a_class():
    assert_close(shown_shares(RECITALS, 3), torch.tensor([[2 / 3, 0, 0], [1 / 3, 1, 0]]))


def test_how_many_show_a_class_in_the_mean():
    # of class 0 the shares are 2/3 and 1/3, as if 9/5 clients showed it; of class 1 one does, of class 2 none
    assert mean_owners(shown_shares(RECITALS, 3)) == pytest.approx((9 / 5 + 1) / 2)


@pytest.mark.parametrize("clients", range(2, 12))
def test_clients_that_are_alike_are_not_found_to_be_fewer(clients):
    assert mean_owners(torch.full((clients, 10), 1 / clients)) == clients


def _taught(student: nn.Module, P: torch.Tensor = P, **options) -> tuple[EvidenceWeighted, Pool]:
    """An ensemble that a student learns from, and its pool."""
    server = replace(server_of([NORMALISED, NORMALISED], spec=TWO, student=student), recitals=RECITALS)
    ensemble = EvidenceWeighted(server, **EVIDENCE, **{**SELF_GATED, **options})
    pool, votes = Pool(server_of(), rounds=1), votes_of(P, features=FEATURES)
    pool.add(Entry(votes.x, torch.tensor([1, 0]), ensemble.remember(votes), torch.zeros(2)))
    return ensemble, pool


def test_in_the_last_rounds_the_student_says_who_is_asked():
    # it says [1/4, 3/4], so client 0 is sent 1/4 2/3 = 1/6 of an image and client 1 the rest
    student = FixedLogits([0.0, LOG3]).train()
    ensemble, pool = _taught(student)
    ensemble.refit(pool, 1, torch.Generator())
    votes = votes_of(P, features=FEATURES)
    assert_close(ensemble.recall(pool.entries[0]), ensemble(votes))
    ensemble.refit(pool, 1, torch.Generator())
    answer = torch.tensor([3 / 4, 1 / 4]) / 6 + torch.tensor([1 / 4, 3 / 4]) * 5 / 6
    assert_close(ensemble.recall(pool.entries[0]).exp(), answer.expand(2, 2))
    assert not torch.allclose(ensemble(votes), answer.log().expand(2, 2))  # what is tested is the evidence ensemble
    assert student.training
    assert not any("logits" in name for name in ensemble.state_dict())


SURE = torch.tensor([[[50.0, 0.0]] * 2, [[0.0, 0.0]] * 2])
"""The first client is sure of class 0, the second knows nothing: its entropy is ln 2."""


def test_whom_the_student_asks_counts_less_where_it_doubts():
    # sent 1/6 and 5/6 of an image, which a doubt of 2 makes 1/6 and 5/6 / 2^2: 4/9 and 5/9
    ensemble, pool = _taught(FixedLogits([0.0, LOG3]), SURE, self_doubt=2.0)
    for _ in range(2):
        ensemble.refit(pool, 1, torch.Generator())
    answer = torch.tensor([1.0, 0.0]) * 4 / 9 + torch.tensor([0.5, 0.5]) * 5 / 9
    assert_close(ensemble.recall(pool.entries[0]).exp(), answer.expand(2, 2))


def test_asking_the_student_leaves_its_running_statistics_alone():
    student = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1), nn.Linear(1, 2)).train()
    ensemble, pool = _taught(student)
    for _ in range(2):
        ensemble.refit(pool, 2, torch.Generator())
    assert ensemble.gates
    assert student.training
    assert int(student[1].num_batches_tracked) == 0


def test_a_stopped_run_goes_on_asking_the_student():
    ensemble, pool = _taught(FixedLogits([0.0, LOG3]))
    ensemble.refit(pool, 2, torch.Generator())
    again, other = _taught(FixedLogits([0.0, LOG3]))
    again.load_state_dict(ensemble.state_dict())
    for each, there in ((ensemble, pool), (again, other)):
        each.refit(there, 2, torch.Generator())
    assert_close(again.recall(other.entries[0]), ensemble.recall(pool.entries[0]), rtol=0, atol=0)
    assert again.gates


@pytest.mark.parametrize(("lacks", "owners"), [({"student": None}, 1.3), ({"recitals": None}, 1.3), ({}, 1.5)])
def test_without_a_student_or_recitals_or_shared_classes_evidence_teaches_to_the_end(lacks, owners):
    there = {"student": FixedLogits([0.0, LOG3]), "recitals": RECITALS}
    server = replace(server_of([NORMALISED, NORMALISED], spec=TWO), **{**there, **lacks})
    ensemble = EvidenceWeighted(server, **EVIDENCE, **{**SELF_GATED, "owners": owners})
    pool, votes = Pool(server_of(), rounds=1), votes_of(P, features=FEATURES)
    pool.add(Entry(votes.x, torch.tensor([1, 0]), ensemble.remember(votes), torch.zeros(2)))
    for _ in range(2):
        ensemble.refit(pool, 2, torch.Generator())
    assert_close(ensemble.recall(pool.entries[0]), ensemble(votes))


def test_the_global_model_sends_an_image_to_whoever_has_its_class():
    # the model says [3/4, 1/4]; of class 0 client 0 has 3 of 4 samples, of class 1 none of 2
    counts, clients = torch.tensor([[3, 0], [1, 2]]), [nn.Identity(), nn.Identity()]
    server = server_of(clients, label_counts=counts, student=FixedLogits([LOG3, 0.0]))
    weight = 0.75 * 0.75
    expected = weight * torch.tensor([0.75, 0.25]) + (1 - weight) * torch.tensor([0.25, 0.75])
    assert_close(SelfGated(server, doubt=0.0)(votes_of(P)).exp(), expected.expand(2, 2))


def test_whom_the_global_model_sends_an_image_to_counts_less_where_it_doubts():
    # sent 9/16 and 7/16 as above; a doubt of 1 halves the second: 18/25 and 7/25
    counts, clients = torch.tensor([[3, 0], [1, 2]]), [nn.Identity(), nn.Identity()]
    server = server_of(clients, label_counts=counts, student=FixedLogits([LOG3, 0.0]))
    expected = torch.tensor([1.0, 0.0]) * 18 / 25 + torch.tensor([0.5, 0.5]) * 7 / 25
    assert_close(SelfGated(server, doubt=1.0)(votes_of(SURE)).exp(), expected.expand(2, 2))


@pytest.mark.parametrize(("share", "rounds", "by_evidence"), [(0.3, 9, 6), (0.3, 10, 7), (0.0, 5, 5)])
def test_the_last_rounds_are_the_nearest_whole_number(share, rounds, by_evidence):
    assert _ensemble(self_gated=share, rounds=rounds).by_evidence == by_evidence  # 2.7 of 9 rounds are 3


def test_as_many_owners_as_are_asked_for_are_enough():
    apart = _recital([0, 0]), _recital([1, 1])  # one owner a class
    server = server_of([NORMALISED, NORMALISED], spec=TWO, student=FixedLogits([0.0, LOG3]))
    server = replace(server, recitals=apart)
    for owners, asked in ((1.0, True), (1.1, False)):
        ensemble = EvidenceWeighted(server, **EVIDENCE, **{**SELF_GATED, "owners": owners})
        assert bool(ensemble.senders) is asked


def test_evidence_that_differs_by_rounding_alone_is_usual_for_each():
    ensemble, pool = _ensemble(), Pool(server_of(), rounds=1)
    votes = votes_of(P, features=FEATURES)
    answers = ensemble.remember(votes)
    answers[..., 2] = torch.tensor([[1.0, 1.0], [1 + 1e-6, 1 + 1e-6]])
    pool.add(Entry(votes.x, torch.tensor([1, 0]), answers, torch.ones(2)))
    ensemble.refit(pool, 4, torch.Generator())
    assert (ensemble.deviation > 1e38).all()
