import math

import torch

from oneshot_fl.models.per_architecture import PerArchitecture, members_of, together


def test_the_vote_is_the_mean_probability(fixed_logits):
    # (3/4, 1/4) and (1/2, 1/2): mean (5/8, 3/8)
    model = together([fixed_logits([math.log(3), 0.0]), fixed_logits([0.0, 0.0])])
    torch.testing.assert_close(model(torch.zeros(1, 1, 1, 1)).exp(), torch.tensor([[5 / 8, 3 / 8]]))


def test_one_model_stays_what_it_is_and_members_are_found_again(fixed_logits):
    models = [fixed_logits([0.0]), fixed_logits([1.0])]
    assert together(models[:1]) is models[0]
    assert members_of(models[0]) == models[:1]
    both = together(models)
    assert isinstance(both, PerArchitecture)
    assert members_of(both) == models
