import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.co_boosting import BoostedWeights
from oneshot_fl.methods.fedhydra import StratifiedAggregation
from oneshot_fl.parts.ensembles import LabelShareWeighted, LogitAverage, SizeWeighted
from oneshot_fl.phases.evaluate import Accuracies, evaluate
from oneshot_fl.phases.evaluate import tested_ensembles as ensembles_to_test  # pytest collects what is called test*
from tests.parts import FixedLogits, recipe_of, server_of


def test_accuracies_are_fractions_of_the_test_set(spec, context, fixed_logits):
    labels = torch.tensor([0, 0, 0, 1, 2])
    test = ImageBatches(torch.zeros(5, 1, 8, 8, dtype=torch.uint8), labels, spec=spec, batch_size=2)
    says_0, says_1 = fixed_logits([1.0, 0.0, 0.0]), fixed_logits([0.0, 5.0, 0.0])
    ensembles = {"uniform": LogitAverage(server_of())}  # mean logits [.5, 2.5, 0]: class 1
    result = evaluate(test, [says_0, says_1], fixed_logits([0.0, 0.0, 1.0]), ensembles, context=context)
    assert result.accuracies == Accuracies([0.6, 0.2], {"uniform": 0.2}, 0.2)
    assert result.balanced == Accuracies([0.333333, 0.333333], {"uniform": 0.333333}, 0.333333)
    assert result.server.confusion == [[0, 0, 3], [0, 0, 1], [0, 0, 1]]


def test_only_what_is_calibrated_is_divided_by_the_temperature(spec, context, fixed_logits):
    test = ImageBatches(
        torch.zeros(5, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0, 0, 1, 2]), spec=spec, batch_size=5
    )
    sure = fixed_logits([math.log(9), 0.0, -50.0])  # by 0.9, at temperature 2 by 3 / (3 + 1), and right of 0.6
    found = evaluate(test, [], sure, {}, temperature=2.0, context=context)
    assert found.server.ece == pytest.approx(0.3, abs=1e-5)
    assert found.calibrated_ece == pytest.approx(0.15, abs=1e-5)


def test_an_ensemble_may_be_called_as_a_client_the_server_or_what_a_dictionary_has(spec, context, fixed_logits):
    test = ImageBatches(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0, 0, 1]), spec=spec, batch_size=4)
    says_0, says_1, says_2 = (fixed_logits(row) for row in torch.eye(3).tolist())
    names = ("server", "client 0", "client 1", "items", "a.b")
    ensembles = {name: LogitAverage(server_of()) for name in names}  # of clients 1 and 1: class 1
    found = evaluate(test, [says_1, says_1], says_0, ensembles, context=context).accuracies
    assert found == Accuracies([0.25, 0.25], dict.fromkeys(names, 0.25), 0.75)
    found = evaluate(test, [says_0, says_2], says_1, {"client 1": ensembles["items"]}, context=context).accuracies
    assert found == Accuracies([0.75, 0.0], {"client 1": 0.75}, 0.25)


def test_an_answer_that_is_no_number_is_right_of_no_class_and_supports_none(spec, context, fixed_logits):
    """Its argmax would be class 0, which most of these are."""
    test = ImageBatches(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0, 0, 1]), spec=spec, batch_size=4)
    broken, says_0 = fixed_logits([math.nan, 0.0, 0.0]), fixed_logits([1.0, 0.0, 0.0])
    found = evaluate(test, [says_0, broken], says_0, {"uniform": LogitAverage(server_of())}, context=context)
    assert found.accuracies == Accuracies([0.75, 0.0], {"uniform": 0.0}, 0.75)
    assert {row.clients for row in found.abstention} == {None}
    assert {row.server for row in found.abstention} == {0.75}


def test_models_are_tested_in_single_precision_as_they_are_served(spec, context):
    """In bf16 a third of a logit that is 1 + 2^-9 is lost, and with it which class is first."""

    class Close(nn.Module):
        def forward(self, x):
            sums = nn.functional.linear(x.flatten(1) * 0 + 1, torch.full((1, 64), (1 + 2**-9) / 64))
            return torch.cat([sums.float(), torch.tensor([[1.0, 0.0]]).expand(len(x), 2)], dim=1)

    test = ImageBatches(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0]), spec=spec, batch_size=2)
    mixed = replace(context, trainer=replace(context.trainer, precision="bf16-mixed"))
    found = evaluate(test, [Close()], Close(), {"uniform": LogitAverage(server_of())}, context=mixed).accuracies
    assert found == Accuracies([1.0], {"uniform": 1.0}, 1.0)


def test_a_server_that_answers_with_no_numbers_has_no_figures(spec, context, fixed_logits):
    test = ImageBatches(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]), spec=spec, batch_size=2)
    with pytest.raises(OneshotError, match=r"^server: its answers .* not finite; gate=checks"):
        evaluate(test, [], fixed_logits([math.inf, 0.0, 0.0]), {}, context=context)


AS_PUBLISHED = {"scale": 1.0, "in_model": True, "space": "logits"}
ROWS = {"uniform": recipe_of(LogitAverage), "guided": recipe_of(StratifiedAggregation, **AS_PUBLISHED)}


def test_rows_are_tested_as_far_as_the_server_has_what_they_need(fixed_logits):
    models = [fixed_logits([1.0, 0.0, 0.0]), fixed_logits([0.0, 1.0, 0.0])]
    assert ensembles_to_test(ROWS, None, server_of(), {}) == {}
    assert set(ensembles_to_test(ROWS, None, server_of(models), {})) == {"uniform"}
    guided = server_of(models, guidance=torch.ones(3, 2))
    assert set(ensembles_to_test(ROWS, None, guided, {})) == {"uniform", "guided"}


def test_the_methods_own_ensemble_is_tested_as_it_learned(fixed_logits):
    server = server_of([fixed_logits([1.0, 0.0, 0.0]), fixed_logits([0.0, 1.0, 0.0])], [1, 3])
    settings = {"step": 0.1, "decay": 1.0, "per": "round", "include_newest": True, "normalise": True}
    own = recipe_of(BoostedWeights, name="boosted", **settings)
    learned = {"weights": torch.tensor([0.1, 0.9]), "rate": torch.tensor(0.1)}
    found = ensembles_to_test({"sized": recipe_of(SizeWeighted)}, own, server, learned)
    assert found["sized"].weights.tolist() == [0.25, 0.75]
    assert found["boosted"].weights.tolist() == learned["weights"].tolist()
    assert ensembles_to_test({}, own, server, {})["boosted"].weights.tolist() == [0.5, 0.5]


class Gated(LogitAverage):
    """As a user's might be: it begins with weights that it draws."""

    def __init__(self, server):
        super().__init__(server)
        self.gate = nn.Linear(3, 1)


def test_an_ensemble_that_draws_its_weights_draws_them_alike_whatever_ran_before(fixed_logits):
    server, rows = server_of([fixed_logits([1.0, 0.0, 0.0])]), {"gated": recipe_of(Gated)}
    first = ensembles_to_test(rows, None, server, {})["gated"]
    torch.rand(7)
    again = ensembles_to_test(rows, None, server, {})["gated"]
    assert torch.equal(first.gate.weight, again.gate.weight)


class _Writes(LogitAverage):
    """An ensemble of a user's that works in the place of what it is given."""

    def __init__(self, server, write):
        super().__init__(server)
        self.write = write

    def forward(self, votes):
        self.write(votes)
        return votes.P.mean(dim=0)


@pytest.mark.parametrize("at", ["P", "x", "features"])
def test_an_ensemble_that_writes_into_the_votes_spoils_no_other_row(spec, context, at):
    test = ImageBatches(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.arange(4) % 3, spec=spec, batch_size=2)
    clients = [nn.Sequential(nn.Flatten(), nn.Linear(64, 3)) for _ in range(2)]
    trimmed = _Writes(server_of(), lambda votes: getattr(votes, at)[0].zero_())
    trimmed.needs = frozenset({"classifiers", "features"})
    ensembles = {"trimmed": trimmed, "uniform": LogitAverage(server_of())}
    with pytest.raises(
        OneshotError, match=r"^evaluate\.ensembles\.trimmed, or method\.ensemble: .*writes into the votes"
    ):
        evaluate(test, clients, clients[0], ensembles, context=context)


def test_what_an_ensemble_writes_past_torch_spoils_no_client_and_no_other_row(spec, context):
    test = ImageBatches(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.zeros(4).long(), spec=spec, batch_size=2)
    clients = [FixedLogits([1.0, 0.0, 0.0]), FixedLogits([1.0, 0.0, 0.0])]
    past = _Writes(server_of(), lambda votes: votes.P.data.mul_(-1))
    found = evaluate(test, clients, clients[0], {"past": past, "uniform": LogitAverage(server_of())}, context=context)
    assert found.accuracies.clients == [1.0, 1.0]
    assert found.accuracies.ensembles == {"past": 0.0, "uniform": 1.0}


def test_an_ensemble_that_normalises_by_the_batch_never_gets_one_image_alone(spec, context):
    images, labels = torch.randint(256, (5, 1, 8, 8), dtype=torch.uint8), torch.tensor([0, 1, 2, 0, 1])
    test = ImageBatches(images, labels, spec=spec, batch_size=4)
    clients = [nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.BatchNorm1d(3)) for _ in range(2)]
    server = server_of(clients, label_counts=torch.ones(2, 3, dtype=torch.long))
    ensembles = {"by_the_batch": LabelShareWeighted(server, bn="batch")}
    found = evaluate(test, clients, clients[0], ensembles, context=context)
    whole = ImageBatches(images, labels, spec=spec, batch_size=5)
    assert found.accuracies == evaluate(whole, clients, clients[0], ensembles, context=context).accuracies
