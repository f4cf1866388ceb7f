import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.co_boosting import BoostedWeights
from oneshot_fl.methods.co_boosting_pp import GatedExperts
from oneshot_fl.methods.fedhydra import StratifiedAggregation
from oneshot_fl.methods.fedisca import NoiseAdapted
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.batch_norm import logits_by_the_batch
from oneshot_fl.parts import ensembles
from oneshot_fl.parts.ensembles import (
    EntropyWeighted,
    Heard,
    LabelShareWeighted,
    LogitAverage,
    NoTeacher,
    ProbabilityAverage,
    SizeWeighted,
    label_free,
    told_by_others,
)
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import Votes
from tests.parts import server_of, votes_of

P = torch.tensor([[[math.log(3.0), 0.0]], [[0.0, 0.0]]])  # two clients, one image: [3/4, 1/4] and [1/2, 1/2]
VOTES = votes_of(P, torch.tensor([0]))


def _server(*sizes: int, guidance: torch.Tensor | None = None) -> Server:
    """Clients of which only the numbers of samples count."""
    return server_of([nn.Identity() for _ in sizes], sizes, guidance=guidance)


def test_logit_average():
    assert_close(LogitAverage(_server(1, 3))(VOTES), torch.tensor([[math.log(3.0) / 2, 0.0]]))


def test_size_weighted():
    assert_close(SizeWeighted(_server(1, 3))(VOTES), torch.tensor([[math.log(3.0) / 4, 0.0]]))


WITHOUT_THE_THIRD = server_of(
    [nn.Identity()] * 2, [1, 3], unknown=[(2,), ()], label_counts=torch.tensor([[1, 0, 0], [1, 1, 3]])
)
"""The first of two clients has no output for the third of three classes."""


def _said(filler: float) -> torch.Tensor:
    """[3/4, 1/4] and next to nothing for the third class, by any logits, and [1/2, 1/4, 1/4]: `[2, 1, 3]`."""
    return torch.tensor([[[0.75, 0.25, filler]], [[0.5, 0.25, 0.25]]]).log() + torch.tensor([5.0, 0.0]).view(2, 1, 1)


def test_who_has_no_output_for_a_class_says_of_it_what_the_others_say():
    own = torch.tensor([[True, True, False], [True, True, True]])
    expected = torch.tensor([[[0.75, 0.25, 0.25]], [[0.5, 0.25, 0.25]]]).log()
    assert_close(told_by_others(_said(1e-9), own), expected)
    two_more = torch.tensor([[[0.5, 0.4, 0.1]], [[0.5, 0.1, 0.4]]]).log()
    lone = told_by_others(torch.cat([_said(1e-9)[:1], two_more]), torch.cat([own, own[1:]]))[0, 0, 2]
    assert_close(lone, torch.tensor(math.log(0.1 * 0.4) / 2))  # the mean of logarithms
    nobody = own & torch.tensor([True, True, False])
    assert_close(told_by_others(_said(1e-3), nobody), _said(1e-3).log_softmax(2))


def test_the_plain_mean_of_a_bank_hears_nobody_on_a_class_without_an_output():
    bank = ClientBank([nn.Identity()] * 2, heard=Heard(WITHOUT_THE_THIRD))
    expected = torch.tensor([[0.75 * 0.5, 0.25 * 0.25, 0.25 * 0.25]]).log() / 2
    assert_close(bank.plain_mean(_said(1e-9)), expected)
    assert not bank.state_dict()


def test_where_all_have_all_classes_the_plain_mean_is_that_of_the_logits_as_they_are():
    bank = ClientBank([nn.Identity()] * 2, heard=Heard(_server(1, 3)))
    assert torch.equal(bank.plain_mean(_said(1e-9)), _said(1e-9).mean(dim=0))


@pytest.mark.parametrize(
    "ensemble",
    [
        LogitAverage(WITHOUT_THE_THIRD),
        SizeWeighted(WITHOUT_THE_THIRD),
        LabelShareWeighted(WITHOUT_THE_THIRD, bn="eval"),
        BoostedWeights(WITHOUT_THE_THIRD, step=0.1, decay=1.0, per="round", include_newest=True, normalise=True),
        NoiseAdapted(WITHOUT_THE_THIRD, temperature=1.0, adapt="batch"),
        GatedExperts(WITHOUT_THE_THIRD, lr=0.1, balance=0.0, expert_grad=True),
    ],
    ids=lambda ensemble: type(ensemble).__name__,
)
def test_a_class_that_one_client_lacks_is_left_to_the_other_where_logits_are_summed(ensemble):
    answers = [ensemble(votes_of(_said(filler))._replace(x=torch.zeros(1, 1, 8, 8))) for filler in (1e-9, 1e-3)]
    assert_close(answers[0][:, 2], torch.tensor([math.log(0.25)]))  # not a half of ln 1e-9 more
    assert_close(answers[0], answers[1], rtol=0, atol=2e-3)


def test_where_all_have_all_classes_logits_are_heard_as_they_are():
    assert Heard(_server(1, 3))(P) is P


def test_label_shares_weigh_clients_by_what_they_have_of_the_images_label():
    server = server_of([nn.Identity()] * 2, label_counts=torch.tensor([[3, 0, 0], [1, 0, 4]]))
    ensemble = LabelShareWeighted(server, bn="eval")
    logits = torch.tensor([[[4.0, 0.0, 0.0]], [[0.0, 8.0, 0.0]]]).expand(2, 3, 3)
    # label 0: 3/4 and 1/4; label 1, which nobody has: 1/2 each; label 2: the second client alone
    expected = torch.tensor([[3.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 8.0, 0.0]])
    assert_close(ensemble(votes_of(logits, torch.arange(3))), expected)


def test_label_shares_can_ask_clients_by_the_batch_at_hand():
    class Pixel(nn.BatchNorm2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).flatten(1)

    clients = [Pixel(1, eps=1e-12).eval() for _ in range(2)]
    clients[1].weight.data.fill_(3.0)
    ensemble = LabelShareWeighted(server_of(clients, label_counts=torch.tensor([[1], [1]])), bn="batch")
    x, y = torch.tensor([0.0, 10.0]).view(2, 1, 1, 1), torch.zeros(2).long()
    P = torch.stack([client(x) for client in clients])
    assert_close(ensemble(Votes(x, y, P, [])), torch.tensor([[-2.0], [2.0]]))  # -1 and 1, -3 and 3
    assert [client.running_mean.item() for client in clients] == [0.0, 0.0]


def test_probability_average_gives_log_probabilities():
    expected = torch.tensor([[math.log(0.625), math.log(0.375)]])
    assert_close(ProbabilityAverage(_server(1, 3))(VOTES), expected)


def test_a_confident_client_weighs_more_however_large_its_logits():
    sure = torch.tensor([[[1e6, 0.0]], [[0.0, 0.0]]])  # entropies 0 and ln 2
    weight = 1 / (1 + 2**-3)
    expected = torch.tensor([[weight + (1 - weight) / 2, (1 - weight) / 2]])
    assert_close(EntropyWeighted(_server(1, 3), sharpness=3.0)(votes_of(sure)).exp(), expected)


def test_without_sharpness_confidence_does_not_count():
    ensemble, average = EntropyWeighted(_server(1, 3), sharpness=0.0), ProbabilityAverage(_server(1, 3))
    assert_close(ensemble(VOTES), average(VOTES))


def test_label_free_keeps_the_ranking_of_ensembles_that_do_not_look_at_the_label():
    logits = torch.randn(3, 4, 5)
    ensemble = LogitAverage(_server(1, 1, 1))
    assert_close(label_free(ensemble, votes_of(logits)), logits.mean(0).log_softmax(1))


class _Swayed(LogitAverage):
    """Adds 5 to the logit of the label that an image was made for."""

    def forward(self, votes):
        return super().forward(votes) + 5 * nn.functional.one_hot(votes.y, votes.P.shape[2])


class _SwayedAndSaysSo(_Swayed):
    needs = _Swayed.needs | {"labels"}


def test_an_ensemble_that_looks_at_the_label_without_saying_so_is_no_teacher_on_test_images():
    with pytest.raises(OneshotError, match=r"^method\.ensemble: answers by votes\.y and does not say so; add `labels`"):
        label_free(_Swayed(_server(1, 3)), VOTES)
    assert torch.isfinite(label_free(_SwayedAndSaysSo(_server(1, 3)), VOTES)).all()


def test_label_free_scores_every_class_under_its_own_hypothesis():
    # U of the hand-worked example: U_r = [[.75, .25], [.2, .8]], U_c = [[.75, .2], [.25, .8]]
    server = _server(1, 1, guidance=torch.tensor([[3.0, 1.0], [1.0, 4.0]]))
    ensemble = StratifiedAggregation(server, scale=1.0, in_model=True, space="logits")
    logits = torch.tensor([[[2.0, 4.0]], [[10.0, 5.0]]])
    # y=0 gives [1.625, 1.75], y=1 gives [1.9, 3.4]: log sigmoid(1.625 - 1.75) and log sigmoid(3.4 - 1.9)
    expected = [-math.log1p(math.exp(0.125)), -math.log1p(math.exp(-1.5))]
    assert_close(label_free(ensemble, votes_of(logits)), torch.tensor([expected]))


@pytest.mark.parametrize("space", ["logits", "probabilities"])
@pytest.mark.parametrize("at_once", [1, 2 * 4 * 5, 10**6])
def test_label_scores_are_those_of_one_label_after_another(space, at_once, monkeypatch):
    monkeypatch.setattr(ensembles, "LOGITS_AT_ONCE", at_once)
    ensemble = StratifiedAggregation(_server(1, 1, 1, guidance=torch.rand(5, 3)), scale=2.0, in_model=True, space=space)
    votes = votes_of(torch.randn(3, 4, 5))
    one_by_one = [ensemble(votes._replace(y=torch.full((4,), j))).log_softmax(1)[:, j] for j in range(5)]
    assert_close(label_free(ensemble, votes), torch.stack(one_by_one, dim=1))


def test_label_scores_are_no_sums_in_bf16():
    ensemble = StratifiedAggregation(_server(1, 1, guidance=torch.rand(3, 2)), scale=1.0, in_model=True, space="logits")
    votes = votes_of(torch.randn(2, 4, 3))
    exact = label_free(ensemble, votes)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(label_free(ensemble, votes), exact)


@pytest.mark.parametrize("bn", ["eval", "batch"])
def test_clients_that_normalise_by_the_batch_are_asked_once_for_all_labels(bn):
    models = [nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.BatchNorm1d(3)).eval() for _ in range(2)]
    server = server_of(models, label_counts=torch.tensor([[1, 0, 3], [1, 1, 3]]))
    ensemble, asked = LabelShareWeighted(server, bn=bn), []
    for model in models:
        model.register_forward_hook(lambda *_: asked.append(1))
    x = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        votes = votes_of(torch.stack([model(x) for model in models]))._replace(x=x)
        one_by_one = [ensemble(votes._replace(y=torch.full((4,), j))).log_softmax(1)[:, j] for j in range(3)]
        asked.clear()
        assert_close(label_free(ensemble, votes), torch.stack(one_by_one, dim=1))
    assert len(asked) == (2 if bn == "batch" else 0)


class _Masked(LogitAverage):
    """As a user's might be: it lets nothing but the label be an answer, and never gives the others back."""

    needs = frozenset({"classifiers", "labels"})

    def forward(self, votes):
        others = torch.ones(votes.P.shape[1:], dtype=torch.bool).scatter_(1, votes.y[:, None], False)
        votes.P.masked_fill_(others, -9.0)
        return votes.P.mean(dim=0)


def test_label_free_asks_about_every_class_with_the_same_votes():
    with pytest.raises(OneshotError, match=r"^a\.key: the ensemble writes into the votes .*votes\.P\.clone\(\)$"):
        label_free(_Masked(_server(1, 1)), votes_of(torch.randn(2, 4, 3)), "a.key")


def test_without_a_teacher_the_pool_keeps_nothing():
    assert NoTeacher(_server()).remember(votes_of(torch.zeros(2, 3, 4))).shape == (3, 0)


def test_a_client_that_normalises_by_the_batch_has_no_say_on_a_class_without_an_output_either():
    models = [nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.BatchNorm1d(3)).eval() for _ in range(2)]
    server = server_of(models, label_counts=torch.tensor([[1, 1, 3], [1, 1, 3]]), unknown=[(), (2,)])
    x = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        ensemble, said = LabelShareWeighted(server, bn="batch"), logits_by_the_batch(models, x)
        votes = votes_of(said)._replace(x=x)
        assert_close(ensemble(votes), Heard(server)(said).mean(dim=0))  # both have as much of every class
        assert not torch.allclose(ensemble(votes), said.mean(dim=0))
