import torch
from torch import nn

from oneshot_fl.models.bank import has_batch_norm
from oneshot_fl.models.group_norm import cnn2_group, cnn3_group
from tests.parts import SMALL


def test_no_sample_changes_anothers_answer_not_even_in_training():
    for build in (cnn2_group, cnn3_group):
        model, x = build(SMALL).train(), torch.randn(4, 1, 8, 8)
        assert not has_batch_norm(model)
        assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-6)


def test_groups_are_32_at_most_and_scale_and_shift_stay():
    norms = [each for each in cnn3_group(SMALL).modules() if isinstance(each, nn.GroupNorm)]
    assert [(each.num_groups, each.num_channels, each.affine) for each in norms] == [(32, 128, True)] * 3
    first, second = (each for each in cnn2_group(SMALL).modules() if isinstance(each, nn.GroupNorm))
    assert (first.num_groups, second.num_groups) == (16, 32)
