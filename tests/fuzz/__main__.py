"""`python -m tests.fuzz [COUNT] [SEED]`: judge wrong lines, count how they end, and name every one that ends badly."""

import sys
from collections import Counter

from tests.fuzz.judge import judge_all
from tests.fuzz.wrong_lines import cases


def main() -> None:
    count, seed = (*map(int, sys.argv[1:3]), *(None, 0)[len(sys.argv[1:3]) :])
    lines = cases(count, seed or 0)
    verdicts = judge_all(lines)
    for case, verdict in zip(lines, verdicts, strict=True):
        if verdict.how != "plain":
            print(f"{verdict.how:9} [{case.kind}] {str(case)[:200]} {verdict.words}")
    print(f"{len(lines)} lines:", dict(Counter(verdict.how for verdict in verdicts)))
    sys.exit(any(verdict.how != "plain" for verdict in verdicts))


if __name__ == "__main__":
    main()
