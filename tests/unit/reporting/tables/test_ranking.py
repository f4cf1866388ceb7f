"""Numbers worked out by hand: four blocks in which a, b, c have the rank sums 5, 8 and 11."""

import math

import pytest

from oneshot_fl.reporting.tables import ranking
from oneshot_fl.reporting.tables.ranking import (
    critical_difference,
    ranked,
    ranks_in,
    rows_of_most_runs,
    same_order,
)

ORDERS = ("abc", "abc", "acb", "bac")
BLOCKS = [{name: 0.9 - 0.1 * order.index(name) for name in "abc"} for order in ORDERS]


def test_equal_values_share_the_mean_of_their_ranks():
    assert ranks_in({"a": 0.5, "b": 0.7, "c": 0.5, "d": 0.1}) == {"a": 2.5, "b": 1, "c": 2.5, "d": 4}


def test_friedmans_statistic_its_p_and_kendalls_w():
    ranking = ranked(BLOCKS)
    assert ranking.ranks == {"a": 1.25, "b": 2.0, "c": 2.75}
    # 12 / (4 * 3 * 4) * (25 + 64 + 121) - 3 * 4 * 4; chi-square with two degrees of freedom has p = exp(-x / 2)
    assert ranking.statistic == pytest.approx(4.5)
    assert ranking.p == pytest.approx(math.exp(-2.25))
    assert ranking.agreement == pytest.approx(4.5 / (4 * 2))


def test_ties_correct_the_statistic():
    # Ranks 1, 2.5, 2.5 twice: 12 / (2 * 3 * 4) * (4 + 25 + 25) - 3 * 2 * 4 = 3, over 1 - 2 * (8 - 2) / (2 * (27 - 3))
    assert ranked([{"a": 0.9, "b": 0.5, "c": 0.5}] * 2).statistic == pytest.approx(3 / 0.75)


def test_means_that_only_rounding_moved_apart_are_ties():
    # 200 and 209 right of 360 are as many as 201 and 208, but as accuracies of six digits 0.568056 and 0.5680555
    block = {"a": (0.555556 + 0.580556) / 2, "b": (0.558333 + 0.577778) / 2, "c": 0.5}
    assert block["a"] != block["b"]
    assert ranks_in(block) == {"a": 1.5, "b": 1.5, "c": 3}
    assert ranked([block] * 2).statistic == pytest.approx(3 / 0.75)  # as above
    assert ranked([{"a": 0.9, "b": 0.900001, "c": 0.900002}] * 2).p == 1


def test_nothing_but_ties_is_no_difference():
    ranking = ranked([dict.fromkeys("abc", 0.5)] * 3)
    assert (ranking.statistic, ranking.p, ranking.agreement) == (0, 1, 0)
    assert ranking.alike == [["a", "b", "c"]]


@pytest.mark.parametrize(("methods", "q"), [(3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_demsars_table(methods, q):
    found = critical_difference(methods, 20) / math.sqrt(methods * (methods + 1) / 120)
    assert found == pytest.approx(q, abs=0.001)


def test_more_blocks_tell_more_apart():
    assert ranked(BLOCKS).critical == pytest.approx(2.343 * math.sqrt(0.5), abs=0.001)
    assert ranked(BLOCKS).alike == [["a", "b", "c"]]
    assert ranked(BLOCKS * 4).alike == [["a", "b"], ["b", "c"]]
    assert ranked(BLOCKS * 6).alike == []


def test_how_alike_two_orders_are():
    order = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert same_order(order, order) == pytest.approx(1)
    assert same_order(order, {"a": 3.0, "b": 2.0, "c": 1.0}) == pytest.approx(-1)
    assert same_order(order, {"c": 2.0, "b": 3.0, "a": 1.0}) == pytest.approx(1 / 3)
    assert same_order(order, dict.fromkeys("abc", 2.0)) == 0


@pytest.mark.parametrize(
    ("blocks", "rows"),
    [
        (["abcpq", "abcpr", "abcqr"], "abc"),  # 3 rows of 3 blocks before 4 of 2
        (["abcde", "abcde", "abc"], "abcde"),  # 5 of 2 before 3 of 3
        (["abcdefgh", "abc", "abc"], "abc"),  # one block ranks nothing
        ([], ""),
    ],
)
def test_the_rows_that_are_ranked_are_those_of_most_runs(blocks, rows):
    assert rows_of_most_runs([frozenset(block)] for block in blocks) == frozenset(rows)


def test_methods_that_each_lack_another_seed_cost_few_seeds():
    others = "pqrstuvw"  # 3 methods with all of 10 seeds, 8 that lack one each
    blocks = [[frozenset("abc" + others.replace(lacking, ""))] for lacking in [*others, "", ""]]
    rows = rows_of_most_runs(blocks)
    assert len(rows) * sum(rows <= block for (block,) in blocks) == 42  # (3 + n) (10 - n) runs, n = 3 or 4


def test_sets_in_common_are_as_many_as_are_tried(monkeypatch):
    monkeypatch.setattr(ranking, "MOST_SETS", 10)
    blocks = [[frozenset("abcdefghijkl".replace(lacking, ""))] for lacking in "defghijkl"]
    assert rows_of_most_runs(blocks) >= set("abc")
