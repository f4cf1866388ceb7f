import pytest
import torch

from oneshot_fl.phases.abstention import clients_support, coverages, surest


def test_the_surest_share_is_rounded_and_never_empty():
    score, right = torch.tensor([0.9, 0.1, 0.5, 0.7]), torch.tensor([True, True, False, False])
    assert [surest(score, right, share) for share in (0.01, 0.25, 0.5, 0.75, 1.0)] == [1.0, 1.0, 0.5, 0.333333, 0.5]


def test_the_clients_support_is_their_mean_probability_of_the_servers_class():
    P = torch.tensor([[[0.8, 0.2], [0.5, 0.5]], [[0.4, 0.6], [0.1, 0.9]]]).log()
    server = torch.tensor([[2.0, 1.0], [0.0, 3.0]])  # says 0, then 1
    assert clients_support(P, server).tolist() == pytest.approx([0.6, 0.7])


def test_both_scores_judge_the_servers_answers():
    # surest of the server first: right, right, wrong, wrong; of the clients: wrong, wrong, right, right
    logits = torch.tensor([[4.0, 0.0], [3.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    rows = coverages(logits, torch.tensor([0, 0, 1, 1]), torch.tensor([0.1, 0.2, 0.3, 0.4]))
    assert (rows[0].coverage, rows[0].server, rows[0].clients) == (0.5, 1.0, 0.0)
    assert (rows[-1].coverage, rows[-1].server, rows[-1].clients) == (1.0, 0.5, 0.5)


def test_without_classifiers_only_the_server_can_say():
    assert {row.clients for row in coverages(torch.eye(2), torch.tensor([0, 1]), None)} == {None}
