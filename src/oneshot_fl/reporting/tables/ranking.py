"""Methods ranked in many blocks: average ranks, Friedman's test, Nemenyi's critical difference, Kendall's W.

J. Demsar: Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

FEWEST_ROWS = 3
"""Two methods are compared by their paired difference; Friedman's test begins with three."""
FEWEST_BLOCKS = 2
LEVEL = 0.95
ROUNDING = 2e-6
"""How far means of accuracies that are kept with six digits may be apart and be of one number of right answers."""
MOST_SETS = 4096
"""Sets of rows that are tried."""
Block = Mapping[str, float]
"""What every method reached on the same clients; more is better."""


@dataclass(frozen=True)
class Ranking:
    """Average ranks over blocks, 1 is best, and whether they are more than chance."""

    ranks: dict[str, float]
    """By method, the best first."""
    blocks: int
    statistic: float
    """Friedman's chi-square, corrected for ties."""
    p: float
    critical: float
    """Nemenyi's critical difference at 95%: average ranks closer than that do not differ significantly."""

    @property
    def agreement(self) -> float:
        """Kendall's W: 1 where all blocks have one order, 0 where they have nothing in common."""
        return self.statistic / (self.blocks * (len(self.ranks) - 1))

    @property
    def alike(self) -> list[list[str]]:
        """The longest stretches of methods, best first, whose average ranks do not differ significantly."""
        names = list(self.ranks)
        ends = [self._end(names, start) for start in range(len(names))]
        longest = [(start, end) for start, end in enumerate(ends) if start == 0 or end > ends[start - 1]]
        return [names[start:end] for start, end in longest if end - start > 1]

    def _end(self, names: Sequence[str], start: int) -> int:
        """One past the last method that does not differ significantly from the one at `start`."""
        least = self.ranks[names[start]]
        return sum(self.ranks[name] <= least + self.critical for name in names)


def ranks_in(block: Block) -> dict[str, float]:
    """Ranks of one block: 1 for the highest; equal values share the mean of their ranks."""
    from scipy.stats import rankdata

    return dict(zip(block, map(float, rankdata([-value for value in _tied(block).values()])), strict=True))


def _tied(block: Block) -> dict[str, float]:
    """A block with one value for all that are no further apart than rounding may have moved them."""
    ordered = sorted(block.values())
    kept = dict(zip(ordered, ordered, strict=True))
    for below, value in pairwise(ordered):
        kept[value] = kept[below] if value - below <= ROUNDING else value
    return {name: kept[value] for name, value in block.items()}


def ranked(blocks: Sequence[Block]) -> Ranking:
    """The ranking over at least two blocks that all have the same three or more methods."""
    each = [ranks_in(block) for block in blocks]
    means = {name: statistics.fmean(ranks[name] for ranks in each) for name in blocks[0]}
    statistic, p = _friedman(each)
    ordered = dict(sorted(means.items(), key=lambda item: item[1]))
    return Ranking(ordered, len(blocks), statistic, p, critical_difference(len(means), len(blocks)))


def _friedman(each: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """Statistic and p of blocks' ranks; 0 and 1 where every block is one tie: the correction would divide by zero."""
    from scipy.stats import friedmanchisquare

    if all(len(set(ranks.values())) == 1 for ranks in each):
        return 0.0, 1.0
    found = friedmanchisquare(*([ranks[name] for ranks in each] for name in each[0]))
    return float(found.statistic), float(found.pvalue)


def critical_difference(methods: int, blocks: int) -> float:
    """Nemenyi's, at 95%: q sqrt(k (k + 1) / 6 N), q of the studentised range with k groups, over sqrt 2."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(LEVEL, methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * blocks))


def same_order(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Kendall's tau-b of two rankings of the same methods: 1 for one order, -1 for its reverse, 0 if one is a tie."""
    from scipy.stats import kendalltau

    if len(set(first.values())) == 1 or len(set(second.values())) == 1:
        return 0.0
    return float(kendalltau([first[name] for name in first], [second[name] for name in first]).statistic)


def rows_of_most_runs(blocks: Iterable[Sequence[frozenset[str]]]) -> frozenset[str]:
    """Of the sets of rows that blocks have in common that of most runs: rows times blocks with all.

    One that can be ranked goes before one that cannot. Where several have as many, it is the one that comes first.

    Args:
        blocks: of each the sets of rows that may be compared there.
    """
    all_blocks = list(blocks)
    sets = _in_common([rows for block in all_blocks for rows in block])
    return max(sets, key=lambda rows: _runs_ranked(rows, all_blocks), default=frozenset())


def _in_common(sets: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """These sets and what any of them have in common, as long as those are no more than `MOST_SETS`."""
    found = dict.fromkeys(sets)
    for one in list(found):
        if len(found) > MOST_SETS:
            break
        found |= dict.fromkeys([one & other for other in found])
    return list(found)


def _runs_ranked(rows: frozenset[str], blocks: Sequence[Sequence[frozenset[str]]]) -> tuple[bool, int]:
    """Whether these rows can be ranked, and how many runs that would rank."""
    with_all = sum(any(rows <= some for some in block) for block in blocks)
    return len(rows) >= FEWEST_ROWS and with_all >= FEWEST_BLOCKS, len(rows) * with_all
