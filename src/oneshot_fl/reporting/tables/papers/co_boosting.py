"""Co-Boosting."""

from fractions import Fraction

from oneshot_fl.reporting.tables.papers.paper import ABSENT, PRESENT, Asked, Paper, of_symbols

SYMBOLS = {
    "mu": ("method.ensemble.step", Fraction(1)),
    "epsilon": ("method.perturb.epsilon", Fraction(1, 2)),  # theirs is in units of images in [-1, 1]
}
SWITCHES = {"GHS": "method.objective.hard_ce.power", "DHS": "method.perturb", "EE": "method.ensemble.step"}


def asked(variant: str, data: str) -> Asked | None:
    """Table 7: its three components, on or off; Tables 18 and 19: step and strength."""
    on = variant.split("+")
    if variant.startswith("no_GHS") or set(on) <= set(SWITCHES):
        return {key: PRESENT if name in on else ABSENT for name, key in SWITCHES.items()}
    return of_symbols(variant, SYMBOLS)


PAPER = Paper(
    "co_boosting",
    "Co-Boosting",
    asked,
    methods={"dense": "dense_co_boosting"},
    holdout=0.2,
    note="27 of its numbers are lost in our text of the paper and stand in no table (FedAvg on SVHN and CIFAR-100 in "
    "Table 1, all but FedDF in Table 16, the default mu in Table 18, and others).",
)
