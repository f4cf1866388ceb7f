import pytest
import torch

from oneshot_fl.phases.abstention import clients_support, coverages, surest


def test_the_surest_share_is_rounded_and_never_empty():
    score, right = torch.tensor([0.9, 0.1, 0.5, 0.7]), torch.tensor([True, True, False, False])
    assert [surest(score, right, share) for share in (0.01, 0.25, 0.5, 0.75, 1.0)] == [1.0, 1.0, 0.5, 0.333333, 0.5]


def test_a_share_is_the_nearest_number_of_images():
    score, right = torch.arange(10.0), torch.arange(10) < 8  # the two surest are wrong
    assert surest(score, right, 0.29) == 0.333333  # 3 of 10


def test_images_of_one_score_count_alike_whatever_their_order():
    score, right = torch.tensor([1.0, 1.0, 0.5, 0.5, 0.5, 0.5]), torch.tensor([True, True, True, False, False, False])
    # 3 of 6: both of score 1, and a quarter of the one that there is room for
    assert surest(score, right, 0.5) == surest(score, right.flip(0).roll(2), 0.5) == 0.75


def test_answers_of_one_float32_confidence_are_told_apart():
    for surer in (30.0, 60.0):  # 1 - 9e-14: 1 in single precision; 1 - 9e-27: 1 in double
        logits = torch.tensor([[surer - 10, 0.0], [surer, 0.0]])
        assert coverages(logits, torch.tensor([1, 0]), None)[0].server == 1.0


def test_the_clients_support_is_their_mean_probability_of_the_servers_class():
    P = torch.tensor([[[0.8, 0.2], [0.5, 0.5]], [[0.4, 0.6], [0.1, 0.9]]]).log()
    server = torch.tensor([[2.0, 1.0], [0.0, 3.0]])  # says 0, then 1
    assert clients_support(P, server).tolist() == pytest.approx([0.6, 0.7])


def test_clients_without_an_output_for_a_class_have_no_say_in_it():
    P = torch.tensor([[[0.8, 0.1999, 1e-4]] * 3, [[0.4, 0.5, 0.1]] * 3]).log()
    server = torch.eye(3)  # says 0, 1 and 2
    known = torch.tensor([[True, True, False], [True, False, False]])
    assert clients_support(P, server, known).tolist() == pytest.approx([0.6, 0.1999, 0.0])


def test_both_scores_judge_the_servers_answers():
    # surest of the server first: right, right, wrong, wrong; of the clients: wrong, wrong, right, right
    logits = torch.tensor([[4.0, 0.0], [3.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    rows = coverages(logits, torch.tensor([0, 0, 1, 1]), torch.tensor([0.1, 0.2, 0.3, 0.4]))
    assert (rows[0].coverage, rows[0].server, rows[0].clients) == (0.5, 1.0, 0.0)
    assert (rows[-1].coverage, rows[-1].server, rows[-1].clients) == (1.0, 0.5, 0.5)


def test_without_classifiers_only_the_server_can_say():
    assert {row.clients for row in coverages(torch.eye(2), torch.tensor([0, 1]), None)} == {None}
