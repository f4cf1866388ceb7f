"""From which state of its file a module was imported: one that was edited since is not the code that runs.

Python does not keep it, so every import is noted from that of this package on. Of a module that was imported before,
only that the process had begun is known.
"""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType

from oneshot_fl.errors import OneshotError

State = tuple[int, int]
"""When a file was written, and its size: by these Python, too, tells whether a compiled module is up to date."""
PROCESS = Path("/proc/self/stat")
"""Only Linux has it."""

_imported: dict[str, State | None] = {}
"""By the module's name; None where it has no file that could be edited."""
_turns: dict[str, int] = {}
"""When each was imported last, in the order of imports."""
_counter = count(1)
_reloaded: set[str] = set()
"""Those that were imported again into the module that they were."""


class Witness(MetaPathFinder):
    """Stands before the other finders: it leaves the finding to them and notes what they find."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """importlib's hook, for imports and reloads."""
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None:
            _imported[fullname] = state_of(spec)
            _turns[fullname] = next(_counter)
            if target is not None:
                _reloaded.add(fullname)
        return spec


def watch() -> None:
    """Note every import from now on."""
    if not any(isinstance(finder, Witness) for finder in sys.meta_path):
        sys.meta_path.insert(0, Witness())


def state_of(spec: ModuleSpec) -> State | None:
    """The state of a module's file; None where it has none of its own, as in a zip archive."""
    status = _status(spec)
    return None if status is None else _state(status)


def imported_from(name: str) -> State | None:
    """The state that this process imported a module from; None where it did not, or before anybody noted it."""
    return _imported.get(name) if name in sys.modules else None


def check_unedited(name: str, spec: ModuleSpec) -> None:
    """Refuse a file that may say something else than what this process imported from it.

    Raises:
        OneshotError: it was written since.
    """
    status = _status(spec)
    if name not in sys.modules or status is None:
        return
    if name in _imported:
        changed, since = _imported[name] != _state(status), f"since {name} was imported"
    else:  # by the moment that no copy takes over from what it is a copy of
        changed, since = status.st_ctime_ns > BEGAN, f"since Python started, perhaps after {name} was imported"
    if changed:
        raise OneshotError(
            f"{spec.origin}: was changed {since}, so it may not be the code that runs; use importlib.reload on the "
            "module, or start Python again"
        )


def check_place(name: str, spec: ModuleSpec | None) -> None:
    """Refuse a file that an import would find now, but whose name this process has imported from elsewhere.

    Raises:
        OneshotError: it has, as where a program goes on to another project's folder.
    """
    imported_as = getattr(sys.modules.get(name), "__spec__", None)
    places = [each.origin for each in (imported_as, spec) if each is not None and each.has_location and each.origin]
    if len(places) == 2 and os.path.realpath(places[0]) != os.path.realpath(places[1]):
        raise OneshotError(
            f"{places[1]}: is not the code that runs, as {name} was imported from {places[0]}; start Python again, or "
            "give one of them another name"
        )


def check_newest(name: str, imports: Iterable[str]) -> None:
    """Refuse a module that may hold what another was before that was reloaded.

    Raises:
        OneshotError: it was imported before; naming both.
    """
    if name not in sys.modules:
        return
    for other in _reloaded.intersection(imports):
        if _turns[other] > _turns.get(name, 0):
            raise OneshotError(
                f"{name}: was imported before {other} was reloaded, and may hold what that was; use "
                f"importlib.reload on {name} too, or start Python again"
            )


def _status(spec: ModuleSpec) -> os.stat_result | None:
    if not spec.has_location or spec.origin is None:
        return None
    try:
        return os.stat(spec.origin)
    except OSError:  # whoever reads it tells why it cannot
        return None


def _state(status: os.stat_result) -> State:
    return status.st_mtime_ns, status.st_size


def _began() -> int:
    """When this process began, in nanoseconds since the epoch; where nothing tells, when it imported this module."""
    if not PROCESS.exists():
        return time.time_ns()
    ticks = int(PROCESS.read_text().rpartition(")")[2].split()[19]) + 1  # the one that it began in is over
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - int(age * 1e9)


BEGAN = _began()
