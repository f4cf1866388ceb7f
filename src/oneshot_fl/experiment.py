"""What of a configuration is compared when two runs are."""

from collections.abc import Collection
from typing import Any

NOT_COMPARED = (
    *("hydra", "logger", "store", "study", "budget", "protocol", "experiment", "evaluate"),
    *("model", "cvae", "server_model"),  # choices: `models` tells what they came to
    *("distill.images", "data.cache", "data.download", "proxy.root"),
)
"""Dotted keys that change nothing that a run does, or whose outcome is compared instead; all others are compared."""


def compared(settings: dict[str, Any]) -> dict[str, Any]:
    """A resolved configuration without `NOT_COMPARED`, the run's own seed and its lookup tables (`of`)."""
    seed = settings.get("seed")
    return _without({key: value for key, value in settings.items() if key != "seed"}, NOT_COMPARED, seed)


def _without(node: dict[str, Any], keys: Collection[str], seed: Any, prefix: str = "") -> dict[str, Any]:
    return {
        key: _without(value, keys, seed, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in node.items()
        if f"{prefix}{key}" not in keys and key != "of" and not (key == "seed" and value == seed)
    }
