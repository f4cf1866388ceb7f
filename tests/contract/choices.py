"""What the contract tests run over: every choice in conf/, and the methods of somebody else in tests/fixtures/conf."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oneshot_fl.config.compose import config_dir, plain
from tests.composing import composed
from tests.foreign import FOREIGN


def choices(group: str, at_least: int, *, without: tuple[str, ...] = ()) -> list[str]:
    """The names of a group's choices in conf/."""
    return _names(config_dir() / group, at_least, without)


def _names(folder: Path, at_least: int, without: tuple[str, ...] = ()) -> list[str]:
    names = sorted({path.stem for path in folder.glob("[!_]*.yaml")} - set(without))
    assert len(names) >= at_least, f"{folder}: only {names}"
    return names


OURS = choices("method", 20)
THEIRS = _names(FOREIGN / "method", 2)
SLOTS = {name: plain(composed(f"method={name}").method) for name in (*OURS, *THEIRS)}
"""Every method's settings, by its name."""


def parts_of(node: Any, slot: str = "") -> Iterator[tuple[str, str]]:
    """The parts of a method: in which slot, and what."""
    if isinstance(node, Mapping):
        if str(node.get("_target_", "torch.")).partition(".")[0] != "torch":  # optimisers are no parts
            yield slot, node["_target_"]
        for name, inner in node.items():
            yield from parts_of(inner, slot or str(name))


def with_a_part_of_their_own() -> list[str]:
    """Few methods that together have every part of all of them in the same slot."""
    parts = {name: set(parts_of(slots)) for name, slots in SLOTS.items()}
    seen: set[tuple[str, str]] = set()
    chosen = []
    for name in sorted(parts, key=lambda name: (-len(parts[name]), name)):
        if not parts[name] <= seen:
            chosen.append(name)
        seen |= parts[name]
    return sorted(chosen)
