import pytest
import torch

from oneshot_fl.data.spread import even_shares, evenly_spaced, spread


@pytest.mark.parametrize(
    ("available", "count", "shares"),
    [
        ([9, 9, 9], 6, [2, 2, 2]),
        ([9, 1, 9], 7, [3, 1, 3]),  # what the rare one lacks goes to the others
        ([2, 3, 9], 8, [2, 3, 3]),
        ([1, 2, 9], 99, [1, 2, 9]),
        ([5, 4, 4], 4, [2, 1, 1]),  # the odd one to the largest
        ([4, 4, 4], 2, [0, 1, 1]),
    ],
)
def test_shares_are_as_equal_as_what_there_is_allows(available, count, shares):
    assert even_shares(available, count) == shares


@pytest.mark.parametrize(
    ("total", "count", "places"), [(10, 5, [0, 2, 4, 6, 8]), (5, 2, [0, 2]), (3, 9, [0, 1, 2]), (4, 0, []), (0, 2, [])]
)
def test_places_are_at_equal_distances(total, count, places):
    assert evenly_spaced(total, count).tolist() == places


def test_positions_are_sorted_by_label_and_evenly_spaced_in_each():
    labels = torch.tensor([2, 0, 2, 0, 2, 0, 2, 0, 7])
    assert spread(labels, 5).tolist() == [1, 5, 0, 4, 8]  # two of labels 0 and 2, the only one of label 7


def test_nothing_is_drawn():
    state = torch.get_rng_state()
    spread(torch.arange(50) % 3, 7)
    assert torch.equal(torch.get_rng_state(), state)
