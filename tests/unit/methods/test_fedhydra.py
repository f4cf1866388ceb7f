"""Eqs. 2-11 and 18 of FedHydra against numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.methods.fedhydra import (
    HardLabel,
    StratifiedAggregation,
    guidance_capability,
    normalised_columns,
    normalised_rows,
)
from oneshot_fl.parts.uploads import Server
from tests.parts import server_of, votes_of

# Two classes, two clients. Rows are classes j, columns clients k.
U = torch.tensor([[3.0, 1.0], [1.0, 4.0]])
PAPER = {"scale": 1.0, "in_model": True, "space": "logits"}


def _server(guidance: torch.Tensor | None) -> Server:
    """As many clients as the guidance matrix has columns."""
    clients = 1 if guidance is None else guidance.shape[1]
    return server_of([nn.Identity() for _ in range(clients)], guidance=guidance)


def test_eq_2_guidance_capability_is_the_relative_drop_of_the_loss():
    losses = torch.tensor([[2.0, 4.0], [1.0, 5.0], [0.5, 4.5]])  # [T_G, pairs]
    # (2 - 0.5) / 0.5 = 3 and (5 - 4) / 4 = 0.25: max and min over all steps, not first and last
    assert_close(guidance_capability(losses, min_loss=1e-8), torch.tensor([3.0, 0.25]))


def test_eq_2_is_guarded_where_the_lowest_loss_is_zero():
    losses = torch.tensor([[1.0], [0.0]])
    assert guidance_capability(losses, min_loss=0.5).item() == 2.0


def test_eqs_4_and_5_rows_sum_to_one_over_clients():
    assert_close(normalised_rows(U), torch.tensor([[0.75, 0.25], [0.2, 0.8]]))


def test_eqs_6_and_7_columns_sum_to_one_over_classes():
    assert_close(normalised_columns(U), torch.tensor([[0.75, 0.2], [0.25, 0.8]]))


def test_a_class_that_no_client_knows_gets_uniform_weights():
    zero_row = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    assert_close(normalised_rows(zero_row), torch.tensor([[0.5, 0.5], [0.25, 0.75]]))
    assert_close(normalised_columns(zero_row.T)[:, 0], torch.tensor([0.5, 0.5]))


def test_eqs_8_to_11_stratified_aggregation():
    # One image per label; client 0 answers [2, 4] and client 1 [10, 5] on both.
    P = torch.tensor([[[2.0, 4.0], [2.0, 4.0]], [[10.0, 5.0], [10.0, 5.0]]])  # [m, b, c]
    y = torch.tensor([0, 1])
    # Eq. 8: client 0 -> [2*.75, 4*.25] = [1.5, 1]; client 1 -> [10*.2, 5*.8] = [2, 4]
    # Eq. 10-11: y=0 -> .75*[1.5, 1] + .25*[2, 4] = [1.625, 1.75]; y=1 -> .2*[1.5, 1] + .8*[2, 4] = [1.9, 3.4]
    ensemble = StratifiedAggregation(_server(U), **PAPER)
    assert_close(ensemble(votes_of(P, y)), torch.tensor([[1.625, 1.75], [1.9, 3.4]]))


def test_scale_and_rows_only_are_options_of_stratified_aggregation():
    P, y = torch.tensor([[[2.0, 4.0]], [[10.0, 5.0]]]), torch.tensor([0])
    server = _server(U)
    scaled = StratifiedAggregation(server, **PAPER | {"scale": 2.0})
    assert_close(scaled(votes_of(P, y)), torch.tensor([[3.25, 3.5]]))
    rows_only = StratifiedAggregation(server, **PAPER | {"in_model": False})
    # .75 * [2, 4] + .25 * [10, 5]
    assert_close(rows_only(votes_of(P, y)), torch.tensor([[4.0, 4.25]]))


def test_probabilities_are_weighed_and_renormalised():
    # softmax: [3/4, 1/4] and [1/4, 3/4]; y = 0: class 0 .75*.75*3/4 + .25*.2*1/4 = .434375,
    # class 1 .75*.25*1/4 + .25*.8*3/4 = .196875; sum .63125
    P, y = torch.tensor([[[math.log(3.0), 0.0]], [[0.0, math.log(3.0)]]]), torch.tensor([0])
    ensemble = StratifiedAggregation(_server(U), **PAPER | {"space": "probabilities"})
    assert_close(ensemble(votes_of(P, y)).exp(), torch.tensor([[0.434375, 0.196875]]) / 0.63125)
    halved = StratifiedAggregation(_server(U), **PAPER | {"space": "probabilities", "scale": 0.5})
    assert_close(halved(votes_of(P, y)), ensemble(votes_of(P, y)) / 2)


def test_clients_that_rule_out_all_that_they_are_trusted_with_know_nothing_together():
    """U_c leaves each the class that it gives exp(-120), 0 in single precision: both classes are as likely, not NaN."""
    P = torch.tensor([[[0.0, 120.0]], [[120.0, 0.0]]])
    ensemble = StratifiedAggregation(_server(torch.eye(2)), **PAPER | {"space": "probabilities"})
    assert_close(ensemble(votes_of(P, torch.tensor([0]))).exp(), torch.tensor([[0.5, 0.5]]))


def test_stratified_aggregation_equals_algorithm_3_written_with_loops():
    m, b, c = 3, 5, 4
    guidance, P, y = torch.rand(c, m), torch.randn(m, b, c), torch.randint(c, (b,))
    rows, columns = normalised_rows(guidance), normalised_columns(guidance)
    expected = torch.zeros(b, c)
    for i in range(b):
        for k in range(m):
            expected[i] += rows[y[i], k] * (columns[:, k] * P[k, i])
    assert_close(StratifiedAggregation(_server(guidance), **PAPER)(votes_of(P, y)), expected)


def test_stratified_aggregation_refuses_to_work_without_guidance():
    with pytest.raises(ValueError, match="guidance"):
        StratifiedAggregation(_server(None), **PAPER)


class _View:
    teacher = torch.tensor([[0.0, 3.0]])
    student = torch.tensor([[math.log(3.0), 0.0]])
    x = torch.zeros(1)


def test_eq_18_is_the_cross_entropy_against_the_hard_label():
    # H[P] = 1; softmax(student) = [3/4, 1/4] -> -log(1/4) = log 4
    assert_close(HardLabel(weight=1.0)(_View()), torch.tensor(math.log(4.0)))
