"""What the contract tests run over: every choice in conf/, and the methods of somebody else in tests/fixtures/conf."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig

from oneshot_fl.config.compose import config_dir, plain
from tests.composing import compose_config

FOREIGN = Path(__file__).parents[1] / "fixtures" / "conf"


class UserFolder(SearchPathPlugin):
    """A user's own folder of configuration, which Hydra reads after ours."""

    folder: ClassVar[Path | None] = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.folder is not None:
            search_path.append("foreign", f"file://{self.folder}")


Plugins.instance().register(UserFolder)


@contextmanager
def foreign_methods() -> Iterator[None]:
    """Inside the block the methods of `FOREIGN` can be chosen."""
    before, UserFolder.folder = UserFolder.folder, FOREIGN
    try:
        yield
    finally:
        UserFolder.folder = before


def choices(group: str, at_least: int, *, without: tuple[str, ...] = ()) -> list[str]:
    """The names of a group's choices in conf/."""
    return _names(config_dir() / group, at_least, without)


def composed(*overrides: str) -> DictConfig:
    """A configuration, also of a foreign method."""
    with foreign_methods():
        return compose_config(*overrides)


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
