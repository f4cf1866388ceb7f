import math

import pytest
import torch

from oneshot_fl.phases.membership import Attack, attack, confidence, matched, relative
from oneshot_fl.seeds import torch_generator


def test_an_attack_is_the_share_of_pairs_in_order_and_of_members_above_all_others():
    # members 4, 2, 1 against 3, 0: pairs 2 + 1 + 1 of 6; one member lies above every other image
    assert attack(torch.tensor([4.0, 2.0, 1.0]), torch.tensor([3.0, 0.0])) == Attack(0.666667, 0.333333)


def test_scores_of_any_size_are_compared_by_their_order():
    members, others = torch.tensor([1e6, -3e5]), torch.tensor([-4e5, -1e6])
    assert attack(members, others) == Attack(1.0, 1.0)
    assert attack(others, members) == Attack(0.0, 0.0)
    assert attack(torch.ones(3), torch.ones(3)) == Attack(0.5, 0.0)


def test_one_false_alarm_in_a_hundred_is_allowed():
    others = torch.arange(100.0)
    assert attack(torch.tensor([98.5]), others).tpr == 1.0  # one of the hundred lies above
    assert attack(torch.tensor([97.5]), others).tpr == 0.0


def test_the_confidence_is_the_log_odds_also_where_a_model_is_certain():
    logits = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]]).log()
    assert confidence(logits, torch.tensor([0, 2])).tolist() == pytest.approx([math.log(7 / 3), math.log(1 / 3)])
    assert confidence(torch.tensor([[200.0, 0.0]]), torch.tensor([0])).tolist() == [200.0]


def test_only_reference_models_that_never_saw_an_image_speak_of_it():
    references = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).double()
    seen = torch.tensor([[True, False], [False, False], [False, True]])
    assert relative(torch.tensor([10.0, 10.0]).double(), references, seen).tolist() == [6.0, 7.0]


def test_both_sides_hold_every_label_equally_often():
    members, others = torch.tensor([0, 0, 0, 1, 2]), torch.tensor([1, 0, 0, 1, 3])
    first, second = matched(members, others, 10, torch_generator(0))
    assert sorted(members[first].tolist()) == sorted(others[second].tolist()) == [0, 0, 1]
    first, second = matched(members, others, 2, torch_generator(0))
    assert members[first].tolist() == others[second].tolist()
    assert len(first) == 2
    assert len(matched(torch.tensor([5]), others, 2, torch_generator(0))[0]) == 0


def test_without_a_member_nothing_is_drawn():
    first, second = matched(torch.tensor([], dtype=torch.long), torch.tensor([0, 1]), 2, torch_generator(0))
    assert len(first) == len(second) == 0
