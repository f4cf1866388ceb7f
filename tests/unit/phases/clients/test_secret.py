import os

import pytest
import torch

from oneshot_fl.phases.clients.secret import normal, uniform


def test_bits_become_numbers_in_the_middle_of_their_places(monkeypatch):
    """The lowest 64 bits are -2^63, a quarter of the way up -2^62, the highest 2^63 - 1: 52 of them count."""
    given = torch.tensor([-(2**63), -(2**62), 0, 2**63 - 1])
    monkeypatch.setattr(os, "urandom", lambda count: given.numpy().tobytes()[:count])
    half = 0.5 / 2**52
    assert uniform(4).tolist() == [half, 0.25 + half, 0.5 + half, 1 - half]
    assert normal(torch.Size([2, 2])).tolist() == [
        [pytest.approx(-8.21, abs=0.01), pytest.approx(-0.67449, abs=1e-5)],
        [pytest.approx(0, abs=1e-9), pytest.approx(8.21, abs=0.01)],
    ]


def test_numbers_are_standard_normal_and_no_seed_repeats_them():
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(normal(torch.Size([100, 1000])))
    first, second = (each.flatten() for each in drawn)
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.02  # six standard errors
    assert float(first.mean()) == pytest.approx(0, abs=0.02)
    assert float(first.std()) == pytest.approx(1, abs=0.02)
    assert float((first.abs() > 1.959964).double().mean()) == pytest.approx(0.05, abs=0.005)
