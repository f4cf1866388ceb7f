"""Runs that are done already: found again before any data is loaded, so that a sweep begun anew skips them.

`<store>/runs/<key>.json` names the folder of a finished run. The key covers the whole configuration, the code and, for
data that lies in files, every file's place, size and time of change. Data of a user's own function may come from
anywhere: such runs load them, and find the results of their phases in the store instead.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneshot_fl.disk import write_atomically
from oneshot_fl.reporting.record import TRACE

MOST_FILES = 200_000
"""Below a `data.root`; of more it would take longer to look at all of them than to load the data."""
ANYWHERE = ("hydra", "store", "study")
"""Keys that do not change what a run's folder holds."""


@dataclass(frozen=True)
class Finished:
    """Where a run of this key would be remembered."""

    store: Path
    key: str

    @property
    def _file(self) -> Path:
        return self.store / "runs" / f"{self.key}.json"

    def find(self) -> Path | None:
        """The folder of a finished run of this key that is still there."""
        try:
            folder = Path(json.loads(self._file.read_text())["folder"])
            trace = json.loads((folder / TRACE).read_text())
            json.loads((folder / "summary.json").read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return None  # never seen, moved or damaged: it is run
        done = isinstance(trace, dict) and trace.get("status") == "done" and trace.get("key") == self.key
        return folder if done else None

    def remember(self, folder: Path) -> None:
        """The run in `folder` is done."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, json.dumps({"folder": str(folder.absolute())}))


def finished(record: Mapping[str, Any], config: Mapping[str, Any], store: Path) -> Finished | None:
    """Where this run would be remembered; None where its data may come from anywhere."""
    if not all(_is_ours(config.get(group)) for group in ("data", "proxy")):
        return None
    roots = {str(node["root"]) for group in ("data", "proxy") if (node := config[group]).get("root")}
    stamps = {root: _stamp(Path(root)) for root in sorted(roots)}
    if None in stamps.values():
        return None
    told = {key: value for key, value in config.items() if key not in ANYWHERE}
    text = json.dumps([told, record["code"]["digest"], stamps], sort_keys=True, default=str)
    return Finished(store, hashlib.sha256(text.encode()).hexdigest()[:20])


def adopt(done: Path, folder: Path) -> dict[str, Any]:
    """Copy what a finished run left into another run's folder, but for its trace; the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    if done.resolve() != folder.resolve():
        for path in done.iterdir():
            if path.is_file() and path.name != TRACE:
                shutil.copyfile(path, folder / path.name)
    return json.loads((folder / "summary.json").read_text())


def _is_ours(node: Any) -> bool:
    return isinstance(node, Mapping) and str(node.get("_target_", "oneshot_fl.")).startswith("oneshot_fl.")


def _stamp(root: Path) -> str | None:
    """A hash over place, size and time of change of every file below `root`; None if there are too many."""
    digest = hashlib.sha256()
    for number, path in enumerate(_files(root)):
        if number == MOST_FILES:
            return None
        status = path.stat()
        digest.update(f"{path.relative_to(root)}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        below.sort()
        yield from (path for name in sorted(names) if (path := Path(folder) / name).is_file())
