import math

import pytest
import torch

from oneshot_fl.phases.class_figures import accuracy, balanced_accuracy, calibration_error, class_figures, log_odds


def _logits(*probabilities):
    return torch.tensor(probabilities).log()


SKEWED = _logits([0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.8, 0.1, 0.1], [0.3, 0.6, 0.1])
"""Called 0, 0, 0, 0, 1."""


def test_a_rare_class_counts_as_much_as_a_frequent_one():
    found = class_figures(SKEWED, torch.tensor([0, 0, 1, 1, 1]))
    assert found.confusion == [[2, 0, 0], [2, 1, 0], [0, 0, 0]]
    assert found.images == [2, 3, 0]
    assert found.recall == [1.0, pytest.approx(1 / 3, abs=1e-6), None]
    assert found.balanced_accuracy == pytest.approx(2 / 3, abs=1e-6)
    assert accuracy(torch.tensor(found.confusion)) == 0.6


def test_the_auroc_counts_pairs_in_the_right_order_and_ties_as_half():
    # class 0: .7 and .5 against .5, .8, .3: (1 + 0 + 1) + (.5 + 0 + 1) of 6 pairs
    # class 1: .3, .1, .6 against .2, .3: (1 + .5) + (0 + 0) + (1 + 1) of 6 pairs
    found = class_figures(SKEWED, torch.tensor([0, 0, 1, 1, 1]))
    assert found.auroc == [pytest.approx(3.5 / 6, abs=1e-6), pytest.approx(3.5 / 6, abs=1e-6), None]
    assert found.macro_auroc == pytest.approx(3.5 / 6, abs=1e-6)


def test_the_auroc_is_of_the_probabilities_that_the_model_answers_with():
    """Class 0 has 0.61 of the first image, its own, and 0.67 of the second; at a temperature of 1/4 0.99 and 0.94."""
    logits, y = torch.tensor([[4.0, 2.0, 2.6, 2.6], [4.0, 3.3, -9.0, -9.0]]), torch.tensor([0, 1])
    assert class_figures(logits, y).auroc[0] == 0.0
    assert class_figures(logits, y, temperature=0.25).auroc[0] == 1.0
    assert class_figures(logits, y, temperature=0.25).ece == class_figures(logits, y).ece


def test_a_test_set_of_one_class_has_no_auroc():
    found = class_figures(SKEWED, torch.zeros(5, dtype=torch.long))
    assert (found.auroc, found.macro_auroc) == ([None] * 3, None)
    assert found.recall == [0.8, None, None]


def test_sure_answers_keep_their_order():
    """Probabilities of both are 1, in single precision or in double."""
    for surer in (31.0, 60.0):
        found = class_figures(torch.tensor([[surer - 1, 0.0], [surer, 0.0]]), torch.tensor([1, 0]))
        assert found.auroc == [1.0, 1.0]


def test_log_odds_are_those_of_the_probabilities():
    logits = torch.randn(20, 5, dtype=torch.double)
    p = logits.softmax(dim=1)
    torch.testing.assert_close(log_odds(logits), (p / (1 - p)).log())
    torch.testing.assert_close(
        log_odds(torch.tensor([[60.0, 0.0], [7.0, 7.0]])), torch.tensor([[60.0, -60], [0, 0]]).double()
    )


def test_the_calibration_error_is_the_gap_in_every_bin_by_its_share():
    # bins of 1/15: .7 alone, .9 twice; the first wrong, one of the others right: .7 * 1/3 + .4 * 2/3
    logits = _logits([0.7, 0.3], [0.9, 0.1], [0.9, 0.1])
    assert class_figures(logits, torch.tensor([1, 0, 1])).ece == pytest.approx(0.7 / 3 + 0.8 / 3, abs=1e-6)
    certain = torch.tensor([[math.inf, 0.0]]).nan_to_num(posinf=1e4)
    assert class_figures(certain, torch.tensor([0])).ece == 0


def test_a_bin_ends_with_its_upper_border():
    # of three alike classes 1/3 = 5/15 belongs to the bin below, 0.36 to the one above: |1 - 1/3| + |0 - 0.36|
    logits = _logits([1 / 3] * 3, [0.36, 0.32, 0.32])
    logits[0] = 0.0
    assert calibration_error(logits, torch.tensor([0, 1])) == pytest.approx((2 / 3 + 0.36) / 2, abs=1e-6)


def test_answers_that_are_all_but_certain_share_the_last_of_fifteen_bins():
    # 600 of probability 1 - 1e-11, 570 of them right, and 400 of 1 / (1 + e^-3.2) = 0.960834, all right:
    # 970 right, 600 + 384.334 hoped for, in one bin; apart they would be 0.03 + 0.4 * 0.039166 = 0.0457
    logits, y = torch.zeros(1000, 2), torch.zeros(1000, dtype=torch.long)
    logits[:600, 0], logits[600:, 0], y[:30] = 25.0, 3.2, 1
    assert calibration_error(logits, y) == pytest.approx(0.014334, abs=1e-6)


def test_no_image_is_no_balanced_accuracy():
    with pytest.raises(ValueError, match="no images"):
        balanced_accuracy(torch.zeros(2, 2, dtype=torch.long))
