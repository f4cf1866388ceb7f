"""What a module of a paper says of it: its words, and what its tables leave to its text."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

PRESENT, ABSENT = "present", "absent"
Asked = dict[str, float | str]
"""Our keys with the values that a variant asks for: a number, `PRESENT` or `ABSENT`."""
OF_THE_TABLE = ("", "local_epochs=50", "sam_local_training", "homogeneous_large_clients", "various_models")
"""Variants that the table's own experiment sets, whole."""


@dataclass(frozen=True)
class Paper:
    """One paper, for the tables that its numbers stand in."""

    name: str
    """As `paper_results.csv` and the folder of its experiments have it."""
    title: str
    asked: Callable[[str, str], Asked | None]
    """From a variant and a data set to what it asks for; None where we cannot run it."""
    methods: Mapping[str, str] = field(default_factory=dict)
    """What it, or its own code, means by the name of a method."""
    partitions: Mapping[str, str] = field(default_factory=dict)
    """The same of a partition."""
    by_method: tuple[str, ...] = ()
    """Keys (and all below) that it sets by method or data set, so methods may differ in them and share a table."""
    holdout: float | None = None
    """Part of the training set that it takes away for the methods with proxy images."""
    note: str = ""
    """What of its numbers stands in no table of ours."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """The same of single tables."""


def of_symbols(variant: str, symbols: Mapping[str, tuple[str, Fraction]]) -> Asked | None:
    """What `symbol=value symbol=value` asks for; `symbols` has our key and its unit for each.

    None where a symbol or its value is nothing that we can set.
    """
    pairs = [part.split("=") for part in variant.split()]
    if any(len(pair) != 2 or pair[0] not in symbols or pair[1] == "learnable" for pair in pairs):
        return None
    return {symbols[name][0]: float(Fraction(value) * symbols[name][1]) for name, value in pairs}


def grants(value: Any, wanted: float | str) -> bool:
    """Whether a setting has the value that is asked for, as exactly as papers print it (1%)."""
    if wanted in (PRESENT, ABSENT):
        return bool(value) == (wanted == PRESENT)
    return math.isclose(value or 0, float(wanted), rel_tol=1e-2)
