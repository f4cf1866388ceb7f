"""What a configuration only names: files of a group that are read when the experiment is bound, and not merged into it.

`server_model=resnet18`, `model.names`, the table of `model.of`, `evaluate.fidelity.model`, `proxy.data`: a change in
such a file, or in the code that it names, is a change of the run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oneshot_fl.config.compose import choices
from oneshot_fl.recipe import digest_of

GROUPS = ("model", "cvae", "data")
"""Those whose choices other keys may name."""
TARGET = re.compile(r"^[^#\n]*\b_target_:\s*[\"']?([\w.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Named:
    """A file that a configuration may mean."""

    group: str
    name: str
    text: str

    @property
    def targets(self) -> list[str]:
        """Every `_target_` in it."""
        return TARGET.findall(self.text)


def named(config: Mapping[str, Any]) -> list[Named]:
    """The files that any value of a configuration may mean, with those that they share their settings with.

    A value that is called like a file and means something else counts too: that costs a comparison and no mistake.
    """
    words = set(_words(config))
    found = [(group, file) for group in GROUPS for name, file in choices(group).items() if name in words]
    shared = {(group, base) for group, file in found for base in file.parent.glob("_*.yaml")}
    return [Named(group, file.stem, file.read_text("utf-8")) for group, file in sorted({*found, *shared})]


def code_of(config: Mapping[str, Any], files: Iterable[Named]) -> str:
    """The digest of the code that a run depends on."""
    return digest_of("oneshot_fl.pipeline", [config, *({"_target_": each} for file in files for each in file.targets)])


def _words(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for inner in node.values():
            yield from _words(inner)
    elif isinstance(node, list | tuple):
        for inner in node:
            yield from _words(inner)
