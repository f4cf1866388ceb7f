"""What a configuration only names: files of a group that are read when the experiment is bound, and not merged into it.

`server_model=resnet18`, `model.names`, the table of `model.of`, `evaluate.fidelity.model`, `proxy.data`: a change in
such a file, or in the code that it names, is a change of the run.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.compose import UNREADABLE, choices, plain
from oneshot_fl.config.explain import explain
from oneshot_fl.config.lent import lent
from oneshot_fl.errors import UNTOLD, OneshotError
from oneshot_fl.recipe import digest_of, sources_of, targets

PHASE = "oneshot_fl.pipeline"
"""Of whose code all that a run does is."""
GROUPS = ("model", "cvae")
"""Those whose choices any key may name; one of `data` is named by `proxy.data` alone."""


@dataclass(frozen=True)
class Named:
    """A choice that a configuration may mean."""

    group: str
    name: str
    settings: Any
    """Plain, and as the run reads them."""

    @property
    def targets(self) -> list[str]:
        """Every `_target_` in it."""
        return targets(self.settings)


def named(config: Mapping[str, Any]) -> list[Named]:
    """What any value of a configuration may mean, with what such files share their settings with.

    A value that is called like a file and means something else counts too: that costs a comparison and no mistake.

    Raises:
        OneshotError: `proxy.data` names what cannot be composed.
    """
    words = set(_words(config))
    found = [(group, file) for group in GROUPS for name, file in choices(group).items() if name in words]
    shared = {(group, base) for group, file in found for base in file.parent.glob("_*.yaml")}
    return [*_lent(config), *(Named(group, file.stem, _read(file)) for group, file in sorted({*found, *shared}))]


def code_of(config: Mapping[str, Any], files: Iterable[Named]) -> str:
    """The digest of the code that a run depends on."""
    return digest_of(PHASE, _with(config, files))


def source_code_of(config: Mapping[str, Any] | None) -> str | None:
    """The same of its sources alone; None where they cannot be told, which the door or the run says."""
    try:
        return None if config is None else sources_of(PHASE, _with(config, named(config)))
    except UNTOLD:
        return None


def _with(config: Mapping[str, Any], files: Iterable[Named]) -> list[Any]:
    """All that names code."""
    return [config, *(file.settings for file in files)]


def _lent(config: Mapping[str, Any]) -> list[Named]:
    """The data set that lends a proxy its images, with all that its file takes from others; the store is no part."""
    proxy = config.get("proxy") or {}
    name = proxy.get("data")
    if name not in choices("data"):
        return []
    cfg = DictConfig({"store": None, "proxy": {"data": name, "root": proxy.get("root")}})
    try:
        return [Named("data", name, plain(lent(cfg)))]
    except (HydraException, OmegaConfBaseException) as error:
        raise OneshotError(f"proxy.data={name}: {explain(error)}") from error


def _read(file: Path) -> Any:
    """A file by itself, as `compose.architecture` reads it; as it is written where only a configuration completes it.

    Nothing of one that cannot be read: where it is meant, that is said when the experiment is bound.
    """
    try:
        node = OmegaConf.load(file)
    except (*UNREADABLE, OmegaConfBaseException):
        return None
    try:
        return plain(node)
    except OmegaConfBaseException:
        return OmegaConf.to_container(node)


def _words(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for inner in node.values():
            yield from _words(inner)
    elif isinstance(node, list | tuple):
        for inner in node:
            yield from _words(inner)
