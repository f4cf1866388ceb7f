from functools import partial

import pytest
import torch
from torch import nn

from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.precision import at_least_float32


@pytest.mark.parametrize(
    ("given", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_nothing_gets_narrower(given, expected):
    assert at_least_float32(torch.ones(2, dtype=given)).dtype == expected


@pytest.mark.parametrize("layer", [nn.PReLU, partial(nn.GroupNorm, 2, 4), partial(nn.RMSNorm, [4, 6, 6])])
def test_stacked_clients_answer_in_mixed_precision_whatever_layers_follow_a_convolution(spec, layer):
    def client():
        return nn.Sequential(nn.Conv2d(1, 4, 3), layer(), nn.Flatten(), nn.Linear(4 * 6 * 6, 3))

    bank = ClientBank([client() for _ in range(2)], mode="stacked")
    x = torch.randn(16, 1, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = bank(x, frozenset()).logits
    torch.testing.assert_close(mixed, bank(x, frozenset()).logits, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_a_bank_in_mixed_precision_answers_in_single_precision(spec, mode):
    bank = ClientBank([cnn2(spec, norm=True) for _ in range(2)], mode=mode)
    x = torch.randn(16, 1, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = bank(x, frozenset({"statistics"}))
    assert outputs.logits.dtype == torch.float32
    torch.testing.assert_close(outputs.logits, bank(x).logits, rtol=0.05, atol=0.05)
    assert outputs.statistics[1][1].batch_var.dtype == torch.float32
