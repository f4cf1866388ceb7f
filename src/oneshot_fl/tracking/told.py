"""What loggers are told of a run besides metrics: what it is when it begins, and what it found when it is over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS = "metrics.csv"
"""The file in a run's folder that one of Lightning's loggers keeps metrics in."""


@dataclass(frozen=True)
class About:
    """What a run is, for loggers that keep runs apart and side by side."""

    folder: Path
    id: str
    """The same where the same run is begun again."""
    name: str
    group: str
    """The study that it belongs to."""
    phases: str
    """Those that it goes through, `clients+stratify+distill`."""
    tags: tuple[str, ...]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a finished run found, for loggers that show more than curves."""

    summary: Mapping[str, Any]
    guidance: Sequence[Sequence[float]] | None
    """The guidance matrix, a row per class, where there is one."""
    uploads: Mapping[str, str]
    """The names and keys of the uploads that the server used: the classifiers', as the guidance has them, and then the
    decoders'."""
    files: Sequence[Path]
    """The server's model and the summary."""
